/* SPDX-License-Identifier: Apache-2.0 */
#include "stream_view.h"

#include <errno.h>

#include "base/bits.h"
#include "base/mem.h"
#include "stream_unseen.h"

#define BATCH 64u

static void lengths(const void *context, const uint64_t *documents, uint32_t count,
                    uint64_t *tokens)
{
    const struct rp_planned_source *view = context;
    rp_source_length_many(view->source, documents, count, tokens);
}

static int counts(const void *context, const uint64_t *documents, uint32_t count, uint8_t *counts,
                  struct rp_error *error)
{
    const struct rp_planned_source *view = context;
    int code = rp_selection_counts(rp_selector_selection(view->selection), documents, count, counts,
                                   error);
    bool used[BATCH];
    for (uint32_t at = 0; code == 0 && view->unseen && at < count; at += BATCH) {
        uint32_t batch = (uint32_t)rp_min_u64(BATCH, count - at);
        rp_planner_token_used(view->unseen, documents + at, batch, used);
        for (uint32_t i = 0; i < batch; i++)
            counts[at + i] = used[i] ? 0 : counts[at + i];
    }
    return code;
}

static int is_trained(const struct rp_planned_source *view, uint64_t document, uint64_t length,
                      uint64_t first, uint64_t end, struct rp_error *error)
{
    const struct rp_part part = {document, length, first, (uint32_t)(end - first)};
    return first < end ? rp_source_is_trained(view->source, &part, error) : 0;
}

/* STREAM2.md section 11: token t ≥ 1 of a fragment has a label if it is trained; with
 * label_across_cuts the token after the fragment is one more. Offsets count an inserted BOS, which
 * is not trained; an inserted EOS is if the document's own last token is. */
static int labelled(const void *context, uint64_t document, uint32_t offset, uint32_t length,
                    struct rp_error *error)
{
    const struct rp_planned_source *view = context;
    uint64_t own = rp_source_length(view->source, document);
    if (own == RP_LENGTH_BAD)
        return rp_source_explain(view->source, document, error);
    uint64_t bos = view->has_bos, whole = own + bos + view->has_eos;
    uint64_t first = (uint64_t)offset + 1;
    uint64_t end = rp_min_u64((uint64_t)offset + length + view->across_cuts, whole);
    if (first >= end || own == 0)
        return 0;
    int code = is_trained(view, document, own, rp_max_u64(first, bos) - bos,
                          rp_min_u64(end - bos, own), error);
    bool has_eos = view->has_eos && end == whole;
    return code == 0 && has_eos ? is_trained(view, document, own, own - 1, own, error) : code;
}

static int prints(const void *context, uint64_t documents, struct rp_source_prints *prints,
                  struct rp_error *error)
{
    const struct rp_planned_source *view = context;
    struct rp_fingerprint fingerprint;
    int code = rp_source_fingerprint_at(view->source, documents, &fingerprint, error);
    if (code < 0)
        return code;
    *prints = (struct rp_source_prints){.sampled = fingerprint.sampled.low,
                                        .full = fingerprint.full.low};
    return view->selection
               ? rp_selection_hash(rp_selector_selection(view->selection), documents,
                                   view->unseen ? &rp_unseen_facts(view->unseen)->hash : NULL,
                                   &prints->selection, error)
               : 0;
}

static int fail_at(const struct rp_config *config, const struct rp_config_source *source,
                   const char *key, int code, struct rp_error *error)
{
    struct rp_config_place place = rp_config_source_key_place(source, key);
    return place.line ? rp_fail_context(error, code, "%.200s:%u", config->called, place.line)
                      : code;
}

static int open_selection(struct rp_planned_source *view, const struct rp_config *config,
                          const struct rp_config_source *given, struct rp_error *error)
{
    uint32_t count = given->repeat.count;
    struct rp_selection_repeat *repeats = rp_calloc(count, sizeof *repeats);
    if (!repeats)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a selection");
    for (uint32_t i = 0; i < count; i++)
        repeats[i] = (struct rp_selection_repeat){given->repeat.entries[i].count,
                                                  given->repeat.entries[i].expression};
    const struct rp_selector_spec spec = {
        .select = given->select, .repeats = repeats, .repeat_count = count, .group = config->group};
    int code = rp_selector_open(&view->selection, view->source, &spec, error);
    free(repeats);
    return code < 0 ? fail_at(config, given, given->select ? "select" : "repeat", code, error) : 0;
}

static int open_unseen(struct rp_planned_source *view, const struct rp_config *config,
                       uint32_t number, const struct rp_corpus *corpus, struct rp_error *error)
{
    const struct rp_config_source *given = &config->sources[number];
    const struct rp_source_view of = {.context = view, .lengths = lengths, .prints = prints};
    struct rp_unseen *unseen; /* the prints are without it until it is open */
    int code = rp_used_open(&unseen, config, number, corpus, &of, error);
    if (code < 0)
        return fail_at(config, given, "unseen_of", code, error);
    view->unseen = unseen;
    return 0;
}

int rp_planned_open(struct rp_planned_source *view, const struct rp_config *config, uint32_t number,
                    const struct rp_corpus *corpus, struct rp_error *error)
{
    const struct rp_config_source *given = &config->sources[number];
    *view = (struct rp_planned_source){.source = rp_corpus_source(corpus, number),
                                       .has_bos = config->bos_id != RP_NO_TOKEN_ID,
                                       .has_eos = config->eos_id != RP_NO_TOKEN_ID,
                                       .across_cuts = config->label_across_cuts,
                                       .has_labels = given->drop_untrained == RP_DROP_FRAGMENTS};
    int code = 0;
    if (given->select || given->repeat.count || given->unseen_of)
        code = open_selection(view, config, given, error);
    if (code == 0 && given->unseen_of)
        code = open_unseen(view, config, number, corpus, error);
    return code;
}

void rp_planned_close(struct rp_planned_source *view)
{
    rp_selector_close(view->selection);
    rp_unseen_close(view->unseen);
    view->unseen = NULL;
    view->selection = NULL;
}

void rp_planned_take(const struct rp_planned_source *view, struct rp_stream_source *made)
{
    made->passes = view->selection ? rp_selection_passes(rp_selector_selection(view->selection))
                                   : 1;
    made->view = (struct rp_source_view){.context = view,
                                         .lengths = lengths,
                                         .counts = view->selection ? counts : NULL,
                                         .labelled = view->has_labels ? labelled : NULL,
                                         .prints = prints};
}
