/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/readers/eos_walk.h"

#include <inttypes.h>

#include "base/bits.h"
#include "corpus/byte_mask.h"
#include "corpus/document_scan.h"
#include "corpus/shard.h"

struct walking {
    struct rp_sink *sink;
    struct rp_byte_mask mask; /* the raw file's, if it has one */
    uint64_t documents;
    uint64_t start; /* first token of the document that is not emitted yet */
    bool has_start;
};

/* Each start is the end of the document before. */
static int add_piece(void *context, const uint8_t *bytes, size_t byte_count, const uint64_t *starts,
                     size_t start_count, struct rp_error *error)
{
    struct walking *walking = context;
    struct rp_sink *sink = walking->sink;
    uint32_t width = rp_token_width(sink->layout.type);
    int code = sink->piece ? sink->piece(sink->context, bytes, byte_count, error) : 0;
    for (size_t i = 0; code == 0 && i < start_count; i++) {
        if (walking->has_start)
            code = rp_byte_mask_read(&walking->mask, walking->documents++, walking->start,
                                     starts[i], error);
        if (code == 0 && walking->has_start)
            code = rp_sink_document(sink, sink->layout.token_offset + walking->start * width,
                                    starts[i] - walking->start, walking->mask.spans.spans,
                                    walking->mask.spans.count, error);
        walking->start = starts[i];
        walking->has_start = true;
    }
    return code;
}

static int check_eos(const char *path, const struct rp_layout *layout, struct rp_error *error)
{
    int64_t eos = layout->eos;
    if (eos == RP_EOS_NONE)
        return rp_fail(
            error, -RP_E_FORMAT, "declare it, for instance `--eos 50256` for the GPT-2 tokenizer",
            "%s: documents are separated by an EOS token, and no eos was declared", path);
    uint32_t bits = rp_token_bits(layout->type);
    if (eos < 0 || (uint64_t)eos >> bits != 0)
        return rp_fail(error, -RP_E_FORMAT, "declare an eos that the tokens can hold",
                       "%s: eos: expected 0 to %" PRIu64 " (%s), found %" PRId64, path,
                       (UINT64_C(1) << bits) - 1, rp_token_type_name(layout->type), eos);
    return 0;
}

int rp_eos_walk(const struct rp_probe *probe, const struct rp_layout *layout, bool eos_leads,
                const struct rp_reader_options *options, struct rp_sink *sink,
                struct rp_error *error)
{
    struct walking walking = {.sink = sink, .mask = RP_BYTE_MASK_NONE};
    struct rp_layout with_mask = *layout;
    struct rp_document_scan scan;
    uint32_t width = rp_token_width(layout->type);
    uint64_t bytes = probe->bytes - layout->token_offset;
    if (bytes % width != 0)
        return rp_fail(error, -RP_E_FORMAT, "was the file cut short, or is the dtype another one?",
                       "%s: expected a multiple of %u bytes of %s tokens, found %" PRIu64 " bytes",
                       probe->path, width, rp_token_type_name(layout->type), bytes);
    if (bytes == 0)
        return rp_fail(error, -RP_E_EMPTY, "remove it from the list of shards, or write it again",
                       "%s: expected tokens, found none after the header", probe->path);
    int code = check_eos(probe->path, layout, error);
    if (code == 0 &&
        with_mask.token_offset == 0) /* without a header it may be one of OLMo's files */
        code = rp_byte_mask_find_olmo(&walking.mask, probe, &options->mask, &with_mask, error);
    if (code == 0)
        code = rp_sink_begin(sink, &with_mask, options, error);
    if (code == 0)
        code = rp_byte_mask_open(&walking.mask, probe, options, &with_mask, error);
    if (code == 0) {
        rp_document_scan_begin(&scan, with_mask.type, with_mask.eos, eos_leads);
        code = rp_tokens_read(&(struct rp_token_pass){.probe = probe,
                                                      .layout = &with_mask,
                                                      .scan = &scan,
                                                      .piece = add_piece,
                                                      .context = &walking,
                                                      .progress = options->progress},
                              error);
        sink->token_max = scan.token_max;
    }
    rp_byte_mask_close(&walking.mask);
    return code;
}
