/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "interrupt.h"

#define CHECK_ROWS 1024u /* planned between two checks of signals and the progress line */

static int no_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "out of memory for state tokens");
}

static int keep_state(struct rp_walk *walk, struct rp_known_state *state, struct rp_error *error)
{
    size_t bytes = rp_plan_save(walk->plan, walk->scratch);
    void *token = bytes > 0 ? realloc(state->token, bytes) : NULL;
    if (!token)
        return no_memory(error);
    memcpy(token, walk->scratch, bytes);
    state->token = token;
    state->bytes = bytes;
    state->row = rp_plan_row(walk->plan);
    state->follows = walk->follows;
    return 0;
}

static int find_identity(struct rp_walk *walk, struct rp_error *error)
{
    struct rp_record_writer writer = {0};
    struct rp_record record;
    rp_plan_contract(walk->plan, &writer);
    int code = writer.out_of_memory ? no_memory(error)
                                    : rp_record_open(&record, writer.text, writer.bytes, error);
    if (code == 0)
        walk->identity = rp_record_hash(&record);
    free(writer.text);
    return code;
}

/* A start may make the tokens of version 2 longer. */
static int make_scratch(struct rp_walk *walk, struct rp_error *error)
{
    size_t bytes = rp_plan_state_bytes_max(walk->plan);
    if (bytes <= walk->scratch_bytes)
        return 0;
    free(walk->scratch);
    walk->scratch = rp_calloc(1, bytes);
    walk->scratch_bytes = walk->scratch ? bytes : 0;
    return walk->scratch ? 0 : no_memory(error);
}

/* The run began with the records of its contract: its index may have grown, and its job may be
 * another one. */
static int keep_zero(struct rp_walk *walk, struct rp_error *error)
{
    int code = rp_plan_rewind(walk->plan, error);
    if (code == 0)
        code = keep_state(walk, &walk->zero, error);
    return code == 0 ? rp_plan_load(walk->plan, walk->given.token, walk->given.bytes, false, error)
                     : code;
}

static int open_parts(struct rp_walk *walk, const void *token, size_t bytes,
                      const struct rp_record *contract, struct rp_error *error)
{
    const struct rp_plan_start start = {.contract = contract, .grow = true};
    int code = rp_stream_open_corpus_with(&walk->corpus, walk->config, true, contract, NULL, error);
    if (code >= 0)
        code = rp_stream_open_plan(&walk->plan, walk->config, walk->corpus, error);
    if (code < 0)
        return code;
    rp_plan_cross_stages(walk->plan);
    code = make_scratch(walk, error);
    if (code == 0)
        code = keep_state(walk, &walk->zero, error);
    if (code == 0 && token) {
        code = rp_plan_version(walk->plan) == 1
                   ? rp_plan_load(walk->plan, token, bytes, false, error)
                   : rp_plan_start(walk->plan, token, bytes, &start, error);
        walk->is_reweighted = code == 0 && rp_plan_is_reweighted(walk->plan);
        if (code == 0)
            code = make_scratch(walk, error);
        if (code == 0)
            code = keep_state(walk, &walk->given, error);
        if (code == 0 && !walk->is_reweighted && rp_plan_version(walk->plan) == 2)
            code = keep_zero(walk, error);
    }
    return code == 0 ? find_identity(walk, error) : code;
}

int rp_walk_open(struct rp_walk *walk, const struct rp_config *config, const void *token,
                 size_t bytes, const struct rp_record *contract, struct rp_error *error)
{
    *walk = (struct rp_walk){.config = config, .landmarks = {.fd = -1, .index_fd = -1}};
    int code = open_parts(walk, token, bytes, contract, error);
    if (code < 0) {
        rp_walk_close(walk);
        return code;
    }
    if (!walk->is_reweighted)
        rp_landmarks_open(&walk->landmarks, config, walk->identity,
                          rp_plan_state_bytes_max(walk->plan));
    return 0;
}

void rp_walk_close(struct rp_walk *walk)
{
    rp_landmarks_close(&walk->landmarks);
    rp_plan_close(walk->plan);
    rp_corpus_close(walk->corpus);
    free(walk->zero.token);
    free(walk->given.token);
    free(walk->near.token);
    free(walk->scratch);
    *walk = (struct rp_walk){.landmarks = {.fd = -1, .index_fd = -1}};
}

/* ---- states ---------------------------------------------------------------------------------- */

static int load(struct rp_walk *walk, const struct rp_known_state *state, struct rp_error *error)
{
    walk->follows = state->follows || state->row <= rp_landmarks_last_row(&walk->landmarks);
    return rp_plan_load(walk->plan, state->token, state->bytes, false, error);
}

/* Load a landmark; one that is not of this stream is dropped, with those after it. */
static bool load_landmark(struct rp_walk *walk, size_t number)
{
    struct rp_error error = {0};
    walk->follows = true;
    if (rp_landmarks_read(&walk->landmarks, number, walk->scratch) &&
        rp_plan_load(walk->plan, walk->scratch, walk->landmarks.list[number].bytes, false,
                     &error) == 0)
        return true;
    rp_log(RP_LOG_WARNING,
           "%s: landmark %zu is none of this stream, and is not used: %s. Rows are planned from an "
           "earlier one",
           walk->landmarks.path, number + 1,
           error.code ? error.message : "it is not the token of its row");
    rp_landmarks_drop(&walk->landmarks, number);
    walk->near.follows = false;
    return false;
}

static const struct rp_known_state *later(const struct rp_known_state *best,
                                          const struct rp_known_state *state, uint64_t row)
{
    bool fits = state->bytes > 0 && state->row <= row;
    return fits && (!best || state->row > best->row) ? state : best;
}

static int fail_reweighted(const struct rp_walk *walk, struct rp_error *error)
{
    if (rp_plan_version(walk->plan) == 2)
        return rp_fail(error, -RP_E_USAGE,
                       "give the checkpoint: its contract has them; or an older one",
                       "the records of the run before row %" PRIu64 ", the position of the state "
                       "that was given, are not known: rows before that one cannot be planned",
                       walk->given.row);
    return rp_fail(error, -RP_E_USAGE,
                   "give an older checkpoint, with the config of that time: `ringpack checkpoint "
                   "list DIR`",
                   "the weights were changed, or num_epochs, at some row before row %" PRIu64
                   ", the position of the state that was given: rows before that one cannot be "
                   "planned from it",
                   walk->given.row);
}

/* Load the nearest state before a row. */
static int load_nearest(struct rp_walk *walk, uint64_t row, struct rp_error *error)
{
    const struct rp_known_state *best = walk->is_reweighted ? NULL : &walk->zero;
    best = later(best, &walk->given, row);
    best = later(best, &walk->near, row);
    if (!best)
        return fail_reweighted(walk, error);
    for (size_t count; (count = rp_landmarks_until(&walk->landmarks, row)) > 0;) {
        if (walk->landmarks.list[count - 1].row <= best->row)
            break;
        if (load_landmark(walk, count - 1))
            return 0;
    }
    return load(walk, best, error);
}

/* ---- rows ------------------------------------------------------------------------------------ */

int rp_walk_next(struct rp_walk *walk, struct rp_row *row, struct rp_error *error)
{
    uint64_t at = rp_plan_row(walk->plan);
    if (at % CHECK_ROWS == 0) {
        const char *safe =
            walk->landmarks.added > 0
                ? "the landmarks that were saved stay: run it again to continue from "
                  "the last of them"
                : "the run is unchanged";
        int stopped = rp_interrupt_check(safe, error);
        if (stopped < 0)
            return stopped;
    }
    if (walk->follows && rp_landmarks_want(&walk->landmarks, walk->plan))
        rp_landmarks_add(&walk->landmarks, walk->plan, walk->scratch);
    return rp_plan_next(walk->plan, row, error);
}

/* Plan up to a row, with a progress line. Returns as rp_walk_to. */
static int plan_to(struct rp_walk *walk, uint64_t row, struct rp_error *error)
{
    uint64_t first = rp_plan_row(walk->plan), began = rp_now_ns();
    int code = 1;
    rp_cmd_progress_begin(&walk->progress, "planning rows", false);
    while (code == 1 && rp_plan_row(walk->plan) < row) {
        struct rp_row passed;
        code = rp_walk_next(walk, &passed, error);
        if (rp_plan_row(walk->plan) % CHECK_ROWS == 0)
            rp_cmd_progress(&walk->progress, rp_plan_row(walk->plan) - first, row - first);
    }
    rp_cmd_progress_end(&walk->progress);
    walk->planned_rows += rp_plan_row(walk->plan) - first;
    walk->planned_ns += rp_now_ns() - began;
    if (code == 0)
        walk->end_row = rp_plan_row(walk->plan);
    return code < 0 ? code : rp_plan_row(walk->plan) < row;
}

int rp_walk_to(struct rp_walk *walk, uint64_t row, struct rp_error *error)
{
    int code = load_nearest(walk, row, error);
    if (code == 0)
        code = plan_to(walk, row, error);
    return code == 0 ? keep_state(walk, &walk->near, error) : code;
}

int rp_walk_continue(struct rp_walk *walk, const void *token, size_t bytes, uint64_t row,
                     struct rp_error *error)
{
    bool can_add = walk->landmarks.can_add;
    int code = rp_plan_load(walk->plan, token, bytes, true, error);
    if (code < 0)
        return code;
    walk->landmarks.can_add = false; /* landmarks are of a stream with one set of weights */
    code = plan_to(walk, row, error);
    walk->landmarks.can_add = can_add;
    return code;
}

int rp_walk_reaches(struct rp_walk *walk, uint64_t rows, struct rp_error *error)
{
    int code = plan_to(walk, walk->near.row + rows, error);
    int loaded = code < 0 ? code : load(walk, &walk->near, error);
    return loaded < 0 ? loaded : code;
}

/* Whether the document was read before the row of a state, which is loaded. */
static int was_drawn(struct rp_walk *walk, const struct rp_known_state *state,
                     const struct rp_draw *draw, struct rp_error *error)
{
    int code = load(walk, state, error);
    return code < 0 ? code : rp_plan_has_drawn(walk->plan, draw);
}

int rp_walk_before(struct rp_walk *walk, const struct rp_draw *draw, struct rp_error *error)
{
    size_t low = 0, high = walk->landmarks.count;
    while (low < high) { /* landmarks below `low` are before the document, from `high` on after */
        size_t middle = low + (high - low) / 2;
        if (!load_landmark(walk, middle))
            high = walk->landmarks.count < high ? walk->landmarks.count : high;
        else if (rp_plan_has_drawn(walk->plan, draw))
            high = middle;
        else
            low = middle + 1;
        low = low < high ? low : high;
    }
    int drawn = walk->given.bytes ? was_drawn(walk, &walk->given, draw, error) : 1;
    if (drawn < 0)
        return drawn;
    if (drawn && walk->is_reweighted)
        return fail_reweighted(walk, error);
    uint64_t landmark_row = low > 0 ? walk->landmarks.list[low - 1].row : 0;
    if (!drawn && walk->given.row >= landmark_row)
        return 0; /* the given state is loaded */
    if (low > 0 && load_landmark(walk, low - 1))
        return 0;
    return load(walk, &walk->zero, error);
}
