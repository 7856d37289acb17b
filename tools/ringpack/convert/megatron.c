/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.c — a Megatron dataset as an input: the documents that the engine itself finds in it. */
#include <errno.h>
#include <inttypes.h>

#include "base/mem.h"
#include "convert/convert.h"
#include "corpus/corpus.h"
#include "interrupt.h"

#define TELL_DOCUMENTS 4096u

/* The spans of a whole document. */
static int find_spans(struct rp_convert *convert, const struct rp_source *source, uint64_t document,
                      struct rp_ids *ids, const struct rp_mask_origin *origin,
                      struct rp_error *error)
{
    const struct rp_part part = {document, ids->count, 0, (uint32_t)ids->count};
    struct rp_span_list *list = &convert->runs;
    uint32_t room = rp_spans_max(part.tokens), count = 0;
    if (!origin || ids->count == 0)
        return 0;
    if (!RP_GROW(list->spans, list->capacity, room))
        return rp_fail(error, -ENOMEM, NULL, "%s: out of memory for spans", convert->path);
    int code = rp_source_spans(source, &part, list->spans, &count, error);
    ids->trained = (struct rp_trained){origin, list->spans, count};
    return code;
}

static int add_document(struct rp_convert *convert, const struct rp_source *source,
                        uint64_t document, const struct rp_map *tokens,
                        const struct rp_shard *shard, struct rp_error *error)
{
    enum rp_token_type type = shard->type;
    struct rp_extent extent;
    int code = rp_source_extent(source, document, &extent, error);
    if (code < 0)
        return code;
    if (extent.tokens > INT32_MAX ||
        extent.byte_offset + extent.tokens * extent.width > tokens->bytes)
        return rp_fail(error, -RP_E_CHANGED, "was its token file replaced meanwhile?",
                       "%s: document %" PRIu64 " ends past the token file", convert->path,
                       document);
    const uint8_t *at = tokens->data + (extent.tokens ? extent.byte_offset : 0);
    struct rp_ids ids = {.at = at, .width = extent.width, .count = (size_t)extent.tokens};
    code = find_spans(convert, source, document, &ids, rp_shard_mask(shard), error);
    if (code < 0)
        return code;
    if (type == RP_TOKEN_U16 || type == RP_TOKEN_I32 || type == RP_TOKEN_U32)
        return rp_convert_sink(convert, &ids, error);
    return rp_fail(error, -RP_E_FORMAT, "write it with tokens as u16 or i32",
                   "%s: expected tokens as u16, i32 or u32, found %s", convert->path,
                   rp_token_type_name(type));
}

static int add_source(struct rp_convert *convert, const struct rp_input *input,
                      const struct rp_corpus *corpus, struct rp_error *error)
{
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    const struct rp_shard *shard = rp_corpus_shard(corpus, 0);
    uint64_t documents = rp_source_documents(source);
    struct rp_map tokens;
    int code = rp_map_open(&tokens, shard->path, error);
    if (code < 0)
        return code;
    for (uint64_t i = 0; i < documents && code == 0; i++) {
        code = add_document(convert, source, i, &tokens, shard, error);
        if (i % TELL_DOCUMENTS == 0) {
            rp_convert_tell(convert,
                            (uint64_t)((double)input->bytes * (double)i / (double)documents));
            code = code ? code : rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
        }
    }
    rp_map_close(&tokens);
    return code;
}

int rp_convert_megatron(struct rp_convert *convert, const struct rp_input *input,
                        struct rp_error *error)
{
    const struct rp_source_spec source = {
        .name = "input",
        .shards = (const char *const[]){input->path},
        .shard_count = 1,
        .format = RP_FORMAT_MEGATRON,
        .eos = RP_EOS_NONE,
        .mask = convert->mask,
    };
    const struct rp_corpus_spec spec = {.sources = &source, .source_count = 1};
    struct rp_corpus *corpus = NULL;
    bool append_eos = convert->append_eos;
    convert->path = input->path;
    convert->line = 0;
    convert->in_rows = true;
    convert->append_eos &= convert->eos_declared;
    int code = rp_tokenizer_flush(&convert->tokenizer, error); /* texts before it: order first */
    if (code == 0)
        code = rp_corpus_open(&corpus, &spec, error);
    if (code == 0) {
        convert->counts.files++;
        code = add_source(convert, input, corpus, error);
        rp_corpus_close(corpus);
    }
    convert->in_rows = false;
    convert->append_eos = append_eos;
    return code;
}
