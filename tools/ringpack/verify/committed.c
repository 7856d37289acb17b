/* SPDX-License-Identifier: Apache-2.0 */
/* committed.c — the rows of journals: compared when they are read, committed when a life ends.
 *
 * Invariants
 * V1  A row is compared whenever it is delivered, also when it is rolled back later.
 *   V2  The rows of a life's journals that are below the first row of the next life are committed.
 *       In a pass each row must be committed exactly once.
 *   V3  The first row of a life is the row at which its trainers attached, not the row that was
 *       requested. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/row_digest.h"
#include "verify/killed_run.h"

static int note_row(struct rp_notes *notes, uint64_t row, struct rp_hash128 digest,
                    struct rp_error *error)
{
    if (!RP_GROW(notes->notes, notes->capacity, notes->count + 1))
        return rp_fail(error, -ENOMEM, "give --rows", "out of memory for the rows");
    notes->notes[notes->count++] = (struct rp_note){row, digest};
    return 0;
}

/* ---- commitment ------------------------------------------------------------------------------ */

/* Commit the notes below `row`, the begin of the next life; rows from `row` on are delivered again
 * (V2). A life may begin below the previous one, so earlier commitments are also rolled back. */
static void commit(struct rp_campaign *c, struct rp_notes *notes, uint64_t row)
{
    for (uint64_t i = row; i < c->committed_end; i++) {
        c->v->rows_redelivered += c->committed[i].times;
        c->committed[i].times = 0;
    }
    c->committed_end = rp_min_u64(c->committed_end, row);
    for (uint64_t i = 0; i < notes->count; i++) {
        const struct rp_note *note = &notes->notes[i];
        if (note->row >= row) {
            c->v->rows_redelivered++;
            continue;
        }
        c->committed[note->row].times++;
        c->committed[note->row].digest = note->digest;
        c->committed_end = rp_max_u64(c->committed_end, note->row + 1);
    }
    notes->count = 0;
}

void rp_verify_check_pass(struct rp_campaign *c)
{
    struct rp_verify *v = c->v;
    struct rp_hash128 digest = {0, 0};
    bool is_first = v->skips == 0;
    commit(c, &c->life.notes, UINT64_MAX);
    for (uint64_t row = 0; row < v->rows; row++) {
        struct rp_commitment *commitment = &c->committed[row];
        if (commitment->times == 0 && !v->reference.rows[row].is_skipped) {
            if (v->skips++ == 0)
                v->first_skip = row;
            if (is_first)
                v->last_skip = row;
        }
        v->duplicates += commitment->times > 1 ? commitment->times - 1 : 0;
        for (uint64_t i = 0; i < commitment->times; i++)
            digest = rp_hash128_sum(digest, commitment->digest);
        commitment->times = 0;
    }
    if (v->verbose && v->skips && is_first)
        fprintf(stderr,
                "verify: pass %" PRIu64 ": rows from %" PRIu64 " to %" PRIu64 " are missing\n",
                v->passes, v->first_skip, v->last_skip);
    c->committed_end = c->furthest = 0;
    if (v->passes == 0 || rp_hash128_equal(v->digest, v->reference.digest))
        v->digest = digest; /* unless an earlier pass was different already */
    v->passes++;
}

/* ---- reading journals ------------------------------------------------------------------------ */

int rp_verify_copy_token(struct rp_verify_token *token, const void *data, size_t bytes,
                         struct rp_error *error)
{
    void *copy = data ? malloc(bytes + 1) : NULL;
    if (data && !copy)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a state token");
    if (data)
        memcpy(copy, data, bytes);
    free(token->data);
    *token = (struct rp_verify_token){copy, bytes};
    return 0;
}

static void difference_found(struct rp_campaign *c, struct rp_difference difference, uint32_t rank)
{
    struct rp_verify *v = c->v;
    difference.rank = rank;
    difference.life = v->lives;
    if (!v->has_difference)
        v->first = difference;
    v->has_difference = true;
}

/* Compare and note a row of the journal of rank `r`. */
static int take_row(struct rp_campaign *c, uint32_t r, const struct rp_journal_row *row,
                    struct rp_error *error)
{
    struct rp_verify *v = c->v;
    struct rp_killed_life *life = &c->life;
    if (row->row >= v->rows)
        return 0; /* not compared, or padding after the end of the stream */
    struct rp_difference difference;
    v->rows_compared++;
    bool equal = rp_reference_equals(&v->reference, row, (const void *)(row + 1), &difference);
    uint64_t ahead = row->row - life->start_row; /* STREAM.md section 6: the rank of a row */
    bool ours = row->row >= life->start_row && ahead / life->rows % life->world == r &&
                row->row >= life->ranks[r].last_row;
    v->rows_different += !equal;
    v->rows_misplaced += !ours;
    if (!equal || !ours)
        difference_found(c, difference, r);
    life->ranks[r].last_row = row->row + 1;
    struct rp_hash128 digest = {0, 0}; /* a row without fragments: its lane has ended */
    if (row->fragments > 0)
        digest = rp_row_digest(row->planned, (struct rp_hash128){row->hash_low, row->hash_high});
    return note_row(&life->notes, row->row, digest, error);
}

/* Whether a rank whose next row was `left_at` may continue at `row`. After the last row that is
 * compared any row may follow, because state tokens do not count rows of padding. A trainer passes
 * over a skipped step before it takes the next batch. */
static bool is_continued(const struct rp_verify *v, uint64_t left_at, uint64_t row)
{
    uint64_t first = rp_min_u64(left_at, row), end = rp_max_u64(left_at, row);
    return first == end || first >= v->rows || rp_plan_skips(v->plan, first, end - first);
}

/* The first attach of a rank in this life (V3). */
static int take_start(struct rp_campaign *c, struct rp_rank *rank, struct rp_error *error)
{
    struct rp_killed_life *life = &c->life;
    if (life->begun && !is_continued(c->v, life->start_row, rank->next_row))
        return rp_fail(error, -RP_E_DIFFERS, "report this, with the seed",
                       "ranks of one life began at rows %" PRIu64 " and %" PRIu64, life->start_row,
                       rank->next_row);
    rank->attached = true;
    rank->last_row = rank->next_row;
    if (life->begun)
        return 0;
    life->begun = true;
    life->start_row = rank->next_row;
    commit(c, &c->pending, life->start_row);
    return rp_verify_copy_token(&life->start, rank->state.data, rank->state.bytes, error);
}

/* The state tokens of ranks at the same row must be equal. */
static void compare_states(struct rp_campaign *c, const struct rp_rank *rank)
{
    for (uint32_t r = 0; r < c->life.world; r++) {
        const struct rp_rank *other = &c->life.ranks[r];
        if (other != rank && other->attached && other->next_row == rank->next_row &&
            (other->state.bytes != rank->state.bytes ||
             memcmp(other->state.data, rank->state.data, rank->state.bytes) != 0))
            c->v->states_different++;
    }
}

static int take_record(struct rp_campaign *c, uint32_t r, const struct rp_journal_record *record,
                       struct rp_error *error)
{
    struct rp_rank *rank = &c->life.ranks[r];
    uint64_t left_at = rank->next_row;
    if (record->state_bytes == 0)
        return rp_fail(error, -RP_E_DIFFERS, "report this, with the seed",
                       "rank %u has no state token at row %" PRIu64, r, record->next_row);
    int code = rp_verify_copy_token(&rank->state, rp_journal_state(record), record->state_bytes,
                                    error);
    rank->next_row = record->next_row;
    c->furthest = rp_max_u64(c->furthest, rank->next_row);
    if (code >= 0 && record->rows == 0 && !rank->attached)
        code = take_start(c, rank, error);
    else if (code >= 0 && record->rows == 0 && !is_continued(c->v, left_at, rank->next_row))
        return rp_fail(error, -RP_E_DIFFERS, "report this, with the seed",
                       "rank %u was at row %" PRIu64 " and was resumed at row %" PRIu64, r, left_at,
                       rank->next_row);
    const uint8_t *at = rp_journal_details(record);
    for (uint32_t i = 0; i < record->rows && code >= 0; i++) {
        const struct rp_journal_row *row = (const void *)at;
        code = take_row(c, r, row, error);
        at += sizeof *row + row->fragments * sizeof(struct rp_journal_fragment);
    }
    if (code >= 0)
        compare_states(c, rank);
    return code;
}

int rp_verify_take_journals(struct rp_campaign *c, struct rp_error *error)
{
    const struct rp_journal_record *record;
    for (uint32_t r = 0; r < c->life.world; r++) {
        int code;
        while ((code = rp_journal_next(&c->life.ranks[r].journal, &record, error)) == 1) {
            code = take_record(c, r, record, error);
            if (code < 0)
                return code;
        }
        if (code < 0)
            return code;
    }
    return 0;
}

const struct rp_verify_token *rp_verify_common_state(const struct rp_killed_life *life)
{
    const struct rp_verify_token *token = life->begun ? &life->start : &life->given;
    uint64_t row = UINT64_MAX;
    for (uint32_t r = 0; r < life->world; r++) {
        const struct rp_rank *rank = &life->ranks[r];
        if (!rank->attached)
            return life->begun ? &life->start : &life->given;
        if (rank->next_row < row) {
            row = rank->next_row;
            token = &rank->state;
        }
    }
    return token;
}
