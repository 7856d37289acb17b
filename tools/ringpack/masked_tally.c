/* SPDX-License-Identifier: Apache-2.0 */
#include "masked_tally.h"

#include <errno.h>
#include <stdio.h>

#include "base/bits.h"
#include "base/mem.h"
#include "cmd.h"
#include "flow/fragment.h"

int rp_masked_tally_open(struct rp_masked_tally *tally, const struct rp_corpus *corpus,
                         uint32_t seq_len_max, struct rp_error *error)
{
    *tally = (struct rp_masked_tally){
        .seq_len_max = seq_len_max,
        .spans = rp_calloc(rp_spans_max(seq_len_max + 1), sizeof(struct rp_span)),
        .sources = rp_calloc(rp_corpus_source_count(corpus), sizeof(struct rp_masked_counts))};
    for (uint32_t s = 0; s < rp_corpus_source_count(corpus); s++)
        tally->is_masked |= rp_source_has_mask(rp_corpus_source(corpus, s));
    return tally->spans && tally->sources
               ? 0
               : rp_fail(error, -ENOMEM, NULL, "out of memory for spans");
}

void rp_masked_tally_close(struct rp_masked_tally *tally)
{
    free(tally->spans);
    free(tally->sources);
}

/* Whether a document has a trained token in [first, end); negative: its spans are damaged. */
static int is_trained(struct rp_masked_tally *tally, const struct rp_source *source,
                      struct rp_part part, uint64_t end, struct rp_error *error)
{
    uint32_t count = 0;
    int code = 0;
    for (; part.first < end && count == 0 && code == 0; part.first += part.tokens) {
        part.tokens = (uint32_t)rp_min_u64(tally->seq_len_max, end - part.first);
        code = rp_source_spans(source, &part, tally->spans, &count, error);
    }
    return code < 0 ? code : count > 0;
}

/* A document that begins in this row, of which the first `kept` tokens are kept. */
static int add_document(struct rp_masked_tally *tally, struct rp_masked_counts *counts,
                        const struct rp_source *source, struct rp_part part, uint64_t kept,
                        struct rp_error *error)
{
    int trained = is_trained(tally, source, part, kept, error);
    if (trained != 0)
        return trained;
    part.first = kept;
    trained = is_trained(tally, source, part, part.length, error);
    counts->untrained += trained == 0;
    counts->cut_off += trained > 0;
    return trained;
}

static int add_fragment(struct rp_masked_tally *tally, const struct rp_source *source,
                        const struct rp_fragment *fragment, uint32_t seq_len, bool is_cut,
                        struct rp_error *error)
{
    uint64_t length = rp_source_length(source, fragment->document);
    struct rp_transfer transfer = {.fragment = *fragment,
                                   .extra = rp_transfer_extra(&tally->form, fragment, length)};
    struct rp_masked_counts *counts = &tally->sources[fragment->source];
    int64_t count = 1;
    int code = 0;
    if (rp_source_has_mask(source))
        count = rp_transfer_spans(&tally->form, source, &transfer, length, tally->spans, error);
    else
        tally->spans[0] = (struct rp_span){0, fragment->length};
    if (count < 0)
        return (int)count;
    tally->row_labels += rp_transfer_labels(&transfer, tally->spans, (uint32_t)count);
    const struct rp_part whole = {.document = fragment->document, .length = length};
    uint64_t kept = is_cut ? rp_min_u64(length, seq_len - tally->form.has_bos) : length;
    if (fragment->offset == 0 && rp_source_has_mask(source))
        code = add_document(tally, counts, source, whole, kept, error);
    return code < 0 ? code : 0;
}

int rp_masked_tally_add(struct rp_masked_tally *tally, const struct rp_corpus *corpus,
                        const struct rp_row *row, uint32_t seq_len, bool is_cut,
                        struct rp_error *error)
{
    int code = 0;
    tally->row_labels = 0;
    for (uint32_t i = 0; i < row->count && code == 0; i++) {
        const struct rp_fragment *fragment = &row->fragments[i];
        const struct rp_source *source = rp_corpus_source(corpus, fragment->source);
        uint64_t before = tally->row_labels;
        if (rp_source_has_mask(source) || tally->form.label_across_cuts)
            code = add_fragment(tally, source, fragment, seq_len, is_cut, error);
        else
            tally->row_labels += fragment->length - 1;
        tally->sources[fragment->source].labels += tally->row_labels - before;
    }
    return code;
}

int rp_masked_tally_dropped(struct rp_masked_tally *tally, const struct rp_corpus *corpus,
                            uint32_t seq_len, uint64_t epochs, struct rp_error *error)
{
    for (uint32_t s = 0; s < rp_corpus_source_count(corpus); s++) {
        const struct rp_source *source = rp_corpus_source(corpus, s);
        uint64_t documents = rp_source_has_mask(source) ? rp_source_documents(source) : 0;
        for (uint64_t d = 0; d < documents; d++) {
            if (rp_source_length(source, d) + tally->form.has_bos + tally->form.has_eos <= seq_len)
                continue;
            int has_span = rp_source_has_span(source, d);
            if (has_span < 0)
                return rp_source_explain(source, d, error);
            tally->sources[s].cut_off += has_span ? epochs : 0;
        }
    }
    return 0;
}

void rp_masked_tally_sum(struct rp_masked_tally *tally, const struct rp_corpus *corpus)
{
    for (uint32_t s = 0; s < rp_corpus_source_count(corpus); s++) {
        tally->all.labels += tally->sources[s].labels;
        tally->all.untrained += tally->sources[s].untrained;
        tally->all.cut_off += tally->sources[s].cut_off;
    }
}

void rp_masked_tally_print(const struct rp_masked_tally *tally, const struct rp_corpus *corpus,
                           const uint64_t *source_tokens)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES];
    printf("trained                  labels  of its tokens  nothing trained       cut off\n");
    for (uint32_t s = 0; s < rp_corpus_source_count(corpus); s++) {
        const struct rp_masked_counts *counts = &tally->sources[s];
        const struct rp_source *source = rp_corpus_source(corpus, s);
        double tokens = (double)rp_max_u64(source_tokens[s], 1);
        if (rp_source_has_mask(source))
            printf("  %-12.12s%17s%13.3f %%%17s%14s\n", rp_source_name(source),
                   rp_cmd_count_text(counts->labels, a), 100 * (double)counts->labels / tokens,
                   rp_cmd_count_text(counts->untrained, b), rp_cmd_count_text(counts->cut_off, c));
    }
}

static json_t *counts_object(const struct rp_masked_counts *counts)
{
    return json_pack("{s:I, s:I, s:I}", "labels", (json_int_t)counts->labels, "untrained_documents",
                     (json_int_t)counts->untrained, "cut_off_documents",
                     (json_int_t)counts->cut_off);
}

json_t *rp_masked_tally_json(const struct rp_masked_tally *tally, const struct rp_corpus *corpus)
{
    json_t *object = counts_object(&tally->all), *sources = json_array();
    for (uint32_t s = 0; s < rp_corpus_source_count(corpus); s++) {
        const struct rp_source *source = rp_corpus_source(corpus, s);
        if (!rp_source_has_mask(source))
            continue;
        json_t *own = counts_object(&tally->sources[s]);
        json_object_set_new(own, "source", rp_cmd_json_text(rp_source_name(source)));
        json_array_append_new(sources, own);
    }
    json_object_set_new(object, "sources", sources);
    return object;
}
