/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c — moves the probe from the nearest known state to a row, and compares the state tokens of
 * trainers with the states there.
 *
 * States of one row may differ although the streams have one identity: their weights changed at
 * different rows. So a token belongs to the served stream only if its row has the same state here.
 * The check plans from one row to the other, and is left out if they are far apart. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "plan/trace.h"
#include "server/probe.h"
#include "server/seats.h"

/* A token is compared only if at most this many rows have to be planned for it: as many as
 * RP_NEAR_ROWS, which is smaller in a simulation. */
#define COMPARED_ROWS 4096u
/* Rows that dispatch may plan to reach the beginning of a step: 50 to 100 ms. */
#define STEP_ROWS (16 * RP_NEAR_ROWS)

/* ---- rows ------------------------------------------------------------------------------------ */

/* The planner's thread stopped before the row was near, because a slice failed: at the end of the
 * stream, at a damaged index, or without memory for its state. Plan that slice again, to return its
 * error. If it succeeds now, from another state, the row is far still and the planner continues. */
static int seek_last_slice(struct rp_stream *stream, uint64_t row, struct rp_error *error)
{
    int code = rp_plan_seek(stream->probe, rp_plan_row(stream->probe) + RP_NEAR_ROWS, NULL);
    if (code >= 0)
        return rp_far_row_want(stream->far, row, stream->probe, error) < 0 ? -ENOMEM : -EINPROGRESS;
    return rp_plan_seek(stream->probe, row, error); /* fails again; its message names `row` */
}

static int seek_probe(struct rp_stream *stream, uint64_t row, struct rp_error *error)
{
    struct rp_far_row *far = stream->far;
    uint64_t at = rp_plan_row(stream->probe);
    if (row <= at || row - at <= RP_NEAR_ROWS)
        return rp_plan_seek(stream->probe, row, error);
    if (far && far->progress == RP_FAR_NEAR && far->row == row)
        return seek_last_slice(stream, row, error);
    int code = far ? rp_far_row_want(far, row, stream->probe, error)
                   : rp_fail(error, -RP_E_BUSY, NULL,
                             "row %" PRIu64 " is far from every known state, the nearest is of row "
                             "%" PRIu64,
                             row, at);
    return code < 0 ? code : -EINPROGRESS;
}

/* A token of the end of the stream is also the token of the padding rows after it, up to the step's
 * end: padding does not change the state. */
static int load_token(struct rp_stream *stream, uint64_t row, const void *token, size_t bytes,
                      struct rp_error *error)
{
    int code = rp_plan_resume(stream->probe, token, bytes, stream->accepts_weights, error);
    if (code < 0)
        return code;
    uint64_t token_row = rp_plan_row(stream->probe);
    struct rp_row next;
    if (row == token_row || (row > token_row && rp_plan_next(stream->probe, &next, NULL) == 0))
        return 0;
    return rp_fail(error, -RP_E_MISMATCH, "present the state token unchanged",
                   "the state token is of row %" PRIu64 ", the trainer at row %" PRIu64, token_row,
                   row);
}

/* The later of two states, as long as it is not after `row`. */
static void prefer(struct rp_row_state *best, uint64_t row, struct rp_row_state other)
{
    if (other.token && other.row <= row && other.row >= best->row)
        *best = other;
}

/* The state that the flow keeps of the micro-batch of `row`. */
static struct rp_row_state state_of_flow(const struct rp_delivery *delivery, uint64_t row)
{
    if (row < rp_numbering_base(&delivery->numbering) || !delivery->flow)
        return (struct rp_row_state){.token = NULL};
    return rp_flow_state_at(delivery->flow, rp_numbering_batch(&delivery->numbering, row));
}

/* The nearest state at or before `row` that the engine has of its own stream. */
static struct rp_row_state nearest_state(const struct rp_engine *engine, uint64_t row)
{
    const struct rp_stream *stream = &engine->stream;
    const struct rp_far_row *far = stream->far;
    struct rp_row_state best = {stream->zero_state, stream->zero_bytes, 0};
    prefer(&best, row,
           (struct rp_row_state){stream->start_state, stream->start_bytes, stream->start_row});
    prefer(&best, row,
           (struct rp_row_state){stream->kept_state, stream->kept_bytes, stream->kept_row});
    if (far)
        prefer(&best, row, (struct rp_row_state){far->state, far->bytes, far->at});
    prefer(&best, row, state_of_flow(&engine->delivery, row));
    RP_ASSERT(best.row <= row);
    return best;
}

static int load_nearest(struct rp_engine *engine, uint64_t row, struct rp_error *error)
{
    struct rp_row_state best = nearest_state(engine, row);
    return rp_plan_load(engine->stream.probe, best.token, best.bytes,
                        engine->stream.accepts_weights, error);
}

int rp_engine_probe_row(struct rp_engine *engine, uint64_t row, const void *token, size_t bytes,
                        struct rp_error *error)
{
    if (token)
        return load_token(&engine->stream, row, token, bytes, error);
    const struct rp_far_row *far = engine->stream.far;
    if (far && far->progress == RP_FAR_OPEN && far->row == row)
        return -EINPROGRESS;
    int code = load_nearest(engine, row, error);
    return code < 0 ? code : seek_probe(&engine->stream, row, error);
}

static int make_room_to_keep(struct rp_stream *stream, struct rp_error *error)
{
    if (!stream->kept_state)
        stream->kept_state = rp_calloc(1, stream->state_bytes_max);
    return stream->kept_state ? 0
                              : rp_fail(error, -ENOMEM, NULL, "out of memory for a state token");
}

int rp_engine_keep_state(struct rp_stream *stream, const struct rp_row_state *state,
                         struct rp_error *error)
{
    int code = make_room_to_keep(stream, error);
    if (code < 0)
        return code;
    RP_ASSERT(state->bytes <= stream->state_bytes_max);
    memcpy(stream->kept_state, state->token, state->bytes);
    stream->kept_bytes = state->bytes;
    stream->kept_row = state->row;
    return 0;
}

int rp_engine_keep_probe_state(struct rp_stream *stream, struct rp_error *error)
{
    int code = make_room_to_keep(stream, error);
    if (code < 0)
        return code;
    code = rp_plan_try_save(stream->probe, stream->kept_state, &stream->kept_bytes, error);
    if (code < 0) {
        free(stream->kept_state);
        stream->kept_state = NULL;
        return code;
    }
    stream->kept_row = rp_plan_row(stream->probe);
    return 0;
}

/* The state from which dispatch can count the step of `batch` (flow/queue.h). Rows before the
 * start may have been delivered with other weights. */
static struct rp_row_state step_state(const struct rp_engine *engine, uint64_t batch)
{
    const struct rp_row_state none = {.token = NULL};
    const struct rp_stream *stream = &engine->stream;
    uint64_t row = rp_delivery_step_row(&engine->delivery, batch);
    bool is_of_stream = row >= stream->start_row || !stream->is_reweighted;
    bool begins_step = row == rp_delivery_row(&engine->delivery, batch);
    if (begins_step || !is_of_stream)
        return none;
    const struct rp_row_state found = nearest_state(engine, row);
    return row - found.row > STEP_ROWS ? none : found;
}

int rp_engine_load_plan(const struct rp_engine *engine, struct rp_plan *plan,
                        struct rp_row_state state, uint64_t batch, struct rp_row_state *before,
                        struct rp_error *error)
{
    *before = step_state(engine, batch);
    return rp_plan_load(plan, state.token, state.bytes, false, error);
}

int rp_engine_probe_batch(struct rp_engine *engine, uint64_t batch, struct rp_error *error)
{
    uint64_t row = rp_delivery_row(&engine->delivery, batch);
    int code = rp_engine_probe_row(engine, row, NULL, 0, error);
    return code == -RP_E_USAGE ? 0 : code; /* padding after the last row: the probe is at the end */
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Has the token other weights than the config, and accepts the engine that? */
static bool has_other_weights(struct rp_stream *stream, const void *token, size_t bytes)
{
    return stream->accepts_weights && rp_plan_resume(stream->probe, token, bytes, false, NULL) < 0;
}

/* Did the weights of the token's stream change, at the token's row or before it? Then rows before
 * the token's cannot be planned from row 0. */
static bool was_reweighted(struct rp_stream *stream, const void *token, size_t bytes)
{
    return rp_plan_resume(stream->probe, token, bytes, stream->accepts_weights, NULL) >= 0 &&
           rp_plan_is_reweighted(stream->probe);
}

/* A state that is compared with another one. */
struct compared {
    uint8_t *state;           /* without the plan digest, which an older token does not have */
    size_t bytes;             /* 0: the row is too far away, or before the probe */
    struct rp_hash128 digest; /* zero if not known */
};

/* Move the probe from where it is to `row`, or to the end before it, and save its state. */
static struct compared state_near(struct rp_stream *stream, uint64_t row, uint8_t *state)
{
    struct compared found = {.state = state};
    uint64_t at = rp_plan_row(stream->probe);
    if (at > row || row - at > COMPARED_ROWS)
        return found;
    int code = rp_plan_seek(stream->probe, row, NULL);
    if (code < 0 && code != -RP_E_USAGE)
        return found;
    found.digest = rp_plan_digest(stream->probe);
    rp_plan_forget_digest(stream->probe);
    found.bytes = rp_plan_save(stream->probe, state);
    return found;
}

static bool is_same(const struct compared *a, const struct compared *b)
{
    const struct rp_hash128 unknown = {0, 0};
    return a->bytes == b->bytes && memcmp(a->state, b->state, a->bytes) == 0 &&
           (rp_hash128_equal(a->digest, b->digest) || rp_hash128_equal(a->digest, unknown) ||
            rp_hash128_equal(b->digest, unknown));
}

static enum rp_stream_of compare(struct rp_engine *engine, const void *token, size_t bytes,
                                 uint8_t *states)
{
    struct compared ours = {.bytes = 0};
    bool accepts = engine->stream.accepts_weights;
    if (rp_plan_resume(engine->stream.probe, token, bytes, accepts, NULL) < 0)
        return RP_STREAM_UNKNOWN;
    uint64_t row = rp_max_u64(rp_plan_row(engine->stream.probe), engine->stream.start_row);
    RP_ASSERT(row >= engine->stream.start_row);
    struct compared theirs = state_near(&engine->stream, row, states);
    if (load_nearest(engine, row, NULL) >= 0)
        ours = state_near(&engine->stream, row, states + engine->stream.state_bytes_max);
    if (theirs.bytes == 0 || ours.bytes == 0)
        return RP_STREAM_UNKNOWN;
    return is_same(&ours, &theirs) ? RP_STREAM_OURS : RP_STREAM_OTHER;
}

enum rp_stream_of rp_engine_stream_of(struct rp_engine *engine, const void *token, size_t bytes)
{
    bool has_changed = was_reweighted(&engine->stream, token, bytes);
    /* In version 1, one source has no weights to differ in. */
    if (rp_plan_version(engine->stream.probe) == 1 && engine->config->source_count == 1 &&
        !has_changed && !engine->stream.is_reweighted)
        return RP_STREAM_OURS;
    uint8_t *states = rp_calloc(2, engine->stream.state_bytes_max);
    enum rp_stream_of stream = states ? compare(engine, token, bytes, states) : RP_STREAM_UNKNOWN;
    free(states);
    if (stream != RP_STREAM_UNKNOWN)
        return stream;
    /* the states could not be compared, but the weights can */
    bool is_other = has_other_weights(&engine->stream, token, bytes) ||
                    (has_changed && !engine->stream.is_reweighted);
    return is_other ? RP_STREAM_OTHER : RP_STREAM_UNKNOWN;
}
