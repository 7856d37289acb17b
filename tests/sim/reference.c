/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c — all rows of the stream, by a plan that runs from row 0 to the end without a resume.
 * tests/oracle tests the plan itself. flow/, shm/ and checkpoint/ are not used. */
#include "story.h"

#include <string.h>

#include "stream.h"

#define ROWS_MAX 4096u

uint32_t stream_token(uint32_t source, uint64_t document, uint64_t index);

static void take_row(struct reference *reference, const struct rp_row *row, int32_t pad_id)
{
    struct reference_row *to = &reference->rows[row->row];
    to->fragments = row->count;
    to->tokens = row->tokens;
    to->ids = sim_take(reference->seq_len * sizeof *to->ids, 16);
    to->pieces = sim_take((row->count + 1) * sizeof *to->pieces, 16);
    uint32_t at = 0;
    for (uint32_t f = 0; f < row->count; f++) {
        const struct rp_fragment *fragment = &row->fragments[f];
        to->pieces[f] = *fragment;
        for (uint32_t i = 0; i < fragment->length; i++)
            to->ids[at++] = (int32_t)stream_token(fragment->source, fragment->document,
                                                  fragment->offset + i);
    }
    while (at < reference->seq_len)
        to->ids[at++] = pad_id;
}

static void take_state(struct reference_row *row, const struct rp_plan *plan, void *buffer)
{
    size_t bytes = rp_plan_save(plan, buffer);
    row->state = rp_hash128(buffer, bytes);
}

static int index_sources(const struct story *story, const struct rp_config *config,
                         struct rp_error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < config->source_count && story->sidecars && code >= 0; i++)
        for (uint32_t s = 0; s < config->sources[i].shard_count && code >= 0; s++)
            code = rp_sidecar_build(config->sources[i].shards[s], NULL, error);
    return code;
}

void reference_make(struct story *story)
{
    struct reference *reference = &story->reference;
    struct rp_config config;
    struct rp_error error = {0};
    struct rp_corpus *corpus = NULL;
    struct rp_plan *plan = NULL;
    struct keys keys = story->stream;
    keys_set(&keys, "batch_size", "1");
    int code = keys_configure(&keys, &config, &error);
    if (code >= 0)
        code = index_sources(story, &config, &error);
    if (code >= 0)
        code = rp_stream_open_corpus(&corpus, &config, false, &error);
    if (code >= 0)
        code = rp_stream_open_plan(&plan, &config, corpus, &error);
    if (code < 0)
        sim_fail("the reference: %s", error.message);
    reference->seq_len = config.seq_len;
    reference->drop_last = config.drop_last;
    reference->rows = sim_take(ROWS_MAX * sizeof *reference->rows, 16);
    void *buffer = sim_take(rp_plan_state_bytes_max(plan), 16);
    struct rp_row row;
    take_state(&reference->rows[0], plan, buffer);
    while ((code = rp_plan_next(plan, &row, &error)) == 1) {
        if (row.row + 2 > ROWS_MAX)
            sim_fail("the reference: more than %u rows", ROWS_MAX);
        take_row(reference, &row, (int32_t)config.pad_id);
        take_state(&reference->rows[row.row + 1], plan, buffer);
        reference->row_count = row.row + 1;
    }
    if (code < 0)
        sim_fail("the reference: %s", error.message);
    sim_give(buffer);
    rp_plan_close(plan);
    rp_corpus_close(corpus);
    rp_config_free(&config);
}

static void compare_row(const struct story *story, const struct rp_geometry *g,
                        const struct rp_batch *batch, uint32_t i, const char *when)
{
    const struct reference *reference = &story->reference;
    uint64_t number = batch->first_row + i;
    static const struct reference_row nothing;
    const struct reference_row *row = number < reference->row_count ? &reference->rows[number]
                                                                    : &nothing;
    const struct rp_row_info *info = rp_batch_section(batch, RP_SECTION_ROWS);
    const int32_t *lengths = rp_batch_section(batch, RP_SECTION_DOC_LENS);
    const int32_t *ids = rp_batch_section(batch, RP_SECTION_INPUT_IDS);
    const struct rp_provenance *all = rp_batch_section(batch, RP_SECTION_PROVENANCE);
    ids += (size_t)i * g->seq_len;
    lengths += (size_t)i * g->max_docs_per_row;
    if (info[i].row != number || info[i].fragments != row->fragments ||
        info[i].tokens != row->tokens)
        sim_fail("%s: row %u with %u fragments of %u tokens expected, row %u with %u of %u found",
                 when, (unsigned)number, row->fragments, row->tokens, (unsigned)info[i].row,
                 info[i].fragments, info[i].tokens);
    for (uint32_t f = 0; f < row->fragments; f++) {
        if (lengths[f] != (int32_t)row->pieces[f].length)
            sim_fail("%s: row %u, fragment %u: %u tokens expected, %d found", when,
                     (unsigned)number, f, row->pieces[f].length, lengths[f]);
        if (all && memcmp(&all[(size_t)i * g->max_docs_per_row + f], &row->pieces[f], sizeof *all))
            sim_fail("%s: row %u, fragment %u comes from elsewhere", when, (unsigned)number, f);
    }
    for (uint32_t t = 0; t < g->seq_len; t++) {
        int32_t expected = row->ids ? row->ids[t] : (int32_t)g->pad_id;
        if (ids[t] != expected)
            sim_fail("%s: row %u, token %u: %d expected, %d found", when, (unsigned)number, t,
                     expected, ids[t]);
    }
}

void reference_compare(const struct story *story, const struct rp_geometry *g,
                       const struct rp_batch *batch, const char *when)
{
    for (uint32_t i = 0; i < batch->rows; i++)
        compare_row(story, g, batch, i, when);
}

void reference_compare_state(const struct story *story, const struct rp_client *client)
{
    uint8_t *state = sim_take(rp_client_state(client, NULL, 0), 16);
    size_t bytes = rp_client_state(client, state, SIZE_MAX);
    uint64_t row = rp_client_next_row(client);
    if (row > story->reference.row_count ||
        !rp_hash128_equal(rp_hash128(state, bytes), story->reference.rows[row].state))
        sim_fail("the state at row %u differs from the plan", (unsigned)row);
    sim_give(state);
}
