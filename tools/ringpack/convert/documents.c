/* SPDX-License-Identifier: Apache-2.0 */
/* documents.c — files that a worker process reads with the library of their form. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "convert/convert.h"
#include "interrupt.h"

/* The request to the worker for a file, as JSON. A path that is no UTF-8 is not for JSON. */
static int send_request(struct rp_convert *convert, const struct rp_input *input,
                        struct rp_error *error)
{
    struct rp_worker *worker = &convert->tokenizer.worker;
    const struct rp_mask_choice *mask = &convert->mask;
    json_t *request = json_pack("{s:s, s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:I, s:b, s:b, s:I, s:I, "
                                "s:o}",
                                "path", input->path, "form", input->form->name, "column",
                                convert->column, "dtype", convert->dtype, "mask", mask->name,
                                "mask_value", mask->value, "mask_of", mask->of, "min_bytes",
                                (json_int_t)convert->min_bytes, "has_tokenizer",
                                convert->text == RP_TEXT_TOKENS, "skip_bad", convert->skip_bad,
                                "begin", (json_int_t)input->begin, "end", (json_int_t)input->end,
                                "sides", rp_convert_sides_json(convert->sides));
    char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    if (!text)
        return rp_fail(error, -RP_E_FORMAT, "give the file a name that is UTF-8",
                       "%s: expected a name in UTF-8", input->path);
    uint32_t head[2] = {RP_ASK_FILE, (uint32_t)strlen(text)};
    int code = rp_worker_send(worker, head, sizeof head, error);
    if (code == 0)
        code = rp_worker_send(worker, text, head[1], error);
    free(text);
    return code;
}

static int take_frame(struct rp_convert *convert, const struct rp_input *input,
                      struct rp_frame *frame, struct rp_error *error)
{
    convert->counts.too_small += frame->dropped;
    convert->counts.special += frame->special;
    convert->counts.bad += frame->bad;
    struct rp_mask_origin origin = frame->origin;
    int failed = rp_mask_origin(&frame->origin, origin.name, &convert->mask, error);
    if (failed < 0)
        return failed;
    if (frame->kind == RP_FRAME_IDS && convert->append_eos && !convert->eos_declared)
        return rp_fail(error, -RP_E_USAGE, "give --eos N, or --no-append-eos",
                       "%s: which token ends a document is not known", input->path);
    int code = rp_frame_deliver(frame, rp_convert_sink, convert, error);
    if (code == 0)
        rp_convert_tell(convert, (uint64_t)((double)input->bytes * frame->share / 0x1p32));
    return code;
}

int rp_convert_documents(struct rp_convert *convert, const struct rp_input *input,
                         struct rp_error *error)
{
    struct rp_worker *worker = &convert->tokenizer.worker;
    convert->path = input->path;
    convert->line = 0;
    convert->in_rows = true;
    int code = rp_tokenizer_flush(&convert->tokenizer, error); /* texts before it: order first */
    if (code == 0)
        code = rp_tokenizer_worker(&convert->tokenizer, input->path, error);
    if (code == 0)
        code = send_request(convert, input, error);
    for (bool more = true; code == 0 && more;) {
        struct rp_frame frame;
        code = rp_worker_receive(worker, &frame, error);
        more = frame.kind != RP_FRAME_END;
        if (code == 0 && more)
            code = take_frame(convert, input, &frame, error);
        else if (code == 0)
            convert->counts.too_small += frame.dropped;
        rp_frame_release(&frame);
        if (code == 0)
            code = rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
    }
    convert->counts.files += input->begin == 0 && (code == 0 || code == RP_CONVERT_ENOUGH);
    convert->in_rows = false;
    if (code != 0) /* the rest of its output is not needed */
        rp_worker_close(worker, true);
    return code;
}
