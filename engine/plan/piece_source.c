/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/piece_source.h"

#include <errno.h>
#include <inttypes.h>

#include "base/mem.h"
#include "plan/plan_state.h"

int rp_piece_source_open(struct rp_piece_source *piece_source, const struct rp_plan *plan,
                         uint32_t lane, struct rp_error *error)
{
    uint32_t source_count = plan->source_count;
    *piece_source = (struct rp_piece_source){
        .config = &plan->config,
        .sources = plan->sources,
        .source_count = source_count,
        .cursors = rp_calloc(source_count, sizeof *piece_source->cursors),
        .mixing = {.heap = rp_calloc(source_count, sizeof *piece_source->mixing.heap),
                   .weight = plan->weights,
                   .mixed = rp_calloc(source_count, sizeof *piece_source->mixing.mixed)},
        .finished = rp_calloc(source_count, 1),
    };
    if (!piece_source->cursors || !piece_source->mixing.heap || !piece_source->mixing.mixed ||
        !piece_source->finished) {
        rp_piece_source_close(piece_source);
        return rp_fail(error, -ENOMEM, "fewer plan_partitions or sources need less memory",
                       "no memory for the cursors of %" PRIu32 " sources in lane %" PRIu32,
                       source_count, lane);
    }
    for (uint32_t s = 0; s < source_count; s++)
        rp_order_init(&piece_source->cursors[s].order, &plan->config, plan->sources[s].documents, s,
                      lane);
    rp_piece_source_reset(piece_source);
    return 0;
}

void rp_piece_source_close(struct rp_piece_source *piece_source)
{
    free(piece_source->cursors);
    free(piece_source->mixing.heap);
    free(piece_source->mixing.mixed);
    free(piece_source->finished);
    *piece_source = (struct rp_piece_source){0};
}

static bool is_last_epoch_over(const struct rp_piece_source *piece_source, uint64_t epoch)
{
    return piece_source->config->num_epochs > 0 && epoch == piece_source->config->num_epochs;
}

void rp_piece_source_reset(struct rp_piece_source *piece_source)
{
    for (uint32_t s = 0; s < piece_source->source_count; s++) {
        struct rp_cursor *cursor = &piece_source->cursors[s];
        cursor->ahead_next = cursor->ahead_count = 0;
        cursor->is_answered = false;
        piece_source->finished[s] = is_last_epoch_over(piece_source, cursor->epoch);
    }
    rp_mixing_build(&piece_source->mixing, piece_source->finished, piece_source->source_count);
}

/* The look-ups of lengths do not depend on each other, so their cache misses overlap. A damaged
 * entry is reported only when its document is to be delivered. */
static void read_ahead(struct rp_cursor *cursor, const struct rp_plan_source *source)
{
    rp_order_enter(&cursor->order, cursor->epoch);
    cursor->ahead_next = 0;
    cursor->ahead_count = rp_order_read(&cursor->order, cursor->position, cursor->ahead_document);
    if (source->length_many) {
        source->length_many(source->lengths, cursor->ahead_document, cursor->ahead_count,
                            cursor->ahead_length);
        return;
    }
    for (uint32_t i = 0; i < cursor->ahead_count; i++)
        cursor->ahead_length[i] = source->length(source->lengths, cursor->ahead_document[i]);
}

/* A damaged entry counts as a token: rp_piece_source_next reports it. */
static bool gives_token(const struct rp_piece_source *piece_source, uint64_t length)
{
    return length == RP_LENGTH_BAD || rp_length_kept(piece_source->config, length) > 0;
}

/* Whether no document of the source can ever give this lane a token, after the lane has read as
 * many documents in a row as the source has, all without one. Without a shuffle the lane gets the
 * same documents in every epoch, so it has seen all. With a shuffle it gets others, so the whole
 * source is searched. */
static bool has_no_token(const struct rp_piece_source *piece_source, uint32_t s)
{
    const struct rp_plan_source *source = &piece_source->sources[s];
    if (piece_source->config->shuffle == RP_SHUFFLE_NONE)
        return true;
    for (uint64_t d = 0; d < source->documents; d++)
        if (gives_token(piece_source, source->length(source->lengths, d)))
            return false;
    return true;
}

static int fail_bad_entry(const struct rp_piece_source *piece_source, uint32_t s, uint64_t document,
                          struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT,
                   "rows delivered so far are valid; repair or rebuild this source's index",
                   "source %s: the index entry of document %" PRIu64 " is damaged",
                   rp_plan_source_word(&piece_source->sources[s], s).text, document);
}

/* `fruitless` counts documents in a row without a token. Searching is expensive, so it is done once
 * for as many documents as the source has. */
static bool can_never_deliver(const struct rp_piece_source *piece_source, uint32_t s,
                              uint64_t *fruitless)
{
    if (*fruitless < piece_source->sources[s].documents)
        return false;
    *fruitless = 0;
    return has_no_token(piece_source, s);
}

static int fail_no_token(const struct rp_piece_source *piece_source, uint32_t s,
                         struct rp_error *error)
{
    const struct rp_order *order = &piece_source->cursors[s].order;
    struct rp_plan_source_word word = rp_plan_source_word(&piece_source->sources[s], s);
    const char *why = piece_source->config->long_doc == RP_LONG_DOC_DROP ? " or longer than seq_len"
                                                                         : "";
    if (piece_source->config->shuffle == RP_SHUFFLE_NONE && order->lanes > 1)
        return rp_fail(error, -RP_E_EMPTY,
                       "use another shuffle, fewer plan_partitions, or one epoch",
                       "source %s: none of the %" PRIu64 " documents of lane %" PRIu32
                       " gives a token (all are empty%s), and without a shuffle it gets no others",
                       word.text, order->lane_units, order->lane, why);
    return rp_fail(
        error, -RP_E_EMPTY,
        "remove the source, or look at its lengths and at long_doc with `ringpack inspect`",
        "source %s: none of its %" PRIu64 " documents gives a token (all are empty%s)", word.text,
        piece_source->sources[s].documents, why);
}

/* Move the cursor past the document that it gives. */
static void advance(struct rp_piece_source *piece_source, uint32_t source)
{
    struct rp_cursor *cursor = &piece_source->cursors[source];
    cursor->ahead_next++;
    if (++cursor->position < cursor->order.documents)
        return;
    cursor->position = 0;
    cursor->epoch++;
    piece_source->finished[source] = is_last_epoch_over(piece_source, cursor->epoch);
}

int rp_piece_source_next(struct rp_piece_source *piece_source, struct rp_piece *piece,
                         struct rp_lane_counts *counts, struct rp_error *error)
{
    uint64_t fruitless = 0;
    while (piece_source->mixing.count > 0) {
        uint32_t s = rp_mixing_first(&piece_source->mixing);
        struct rp_cursor *cursor = &piece_source->cursors[s];
        if (cursor->ahead_next == cursor->ahead_count)
            read_ahead(cursor, &piece_source->sources[s]);
        uint64_t document = cursor->ahead_document[cursor->ahead_next];
        uint64_t length = cursor->ahead_length[cursor->ahead_next];
        if (length == RP_LENGTH_BAD)
            return fail_bad_entry(piece_source, s, document, error);

        advance(piece_source, s);
        uint64_t kept = rp_length_kept(piece_source->config, length);
        counts->documents++;
        counts->tokens_read += length;
        if (kept < length)
            *(kept > 0 ? &counts->truncated : &counts->dropped) += length - kept;

        rp_mixing_advance_first(&piece_source->mixing, kept, piece_source->finished[s]);
        if (kept > 0) {
            *piece = (struct rp_piece){document, 0, kept, s};
            return 1;
        }
        counts->empty += length == 0;
        /* A source that delivers no piece stays the first of the mixing until it is finished. */
        fruitless = piece_source->finished[s] ? 0 : fruitless + 1;
        if (can_never_deliver(piece_source, s, &fruitless))
            return fail_no_token(piece_source, s, error);
    }
    return 0;
}

/* Whether rp_piece_source_next would deliver a document of this source, or fail, before the source
 * is finished. */
static bool search_ahead(const struct rp_piece_source *piece_source, uint32_t s)
{
    const struct rp_plan_source *source = &piece_source->sources[s];
    const struct rp_cursor *cursor = &piece_source->cursors[s];
    for (uint32_t i = cursor->ahead_next; i < cursor->ahead_count; i++)
        if (gives_token(piece_source, cursor->ahead_length[i]))
            return true;

    struct rp_order order = cursor->order;
    uint64_t fruitless = cursor->ahead_count - cursor->ahead_next;
    uint64_t position = cursor->position + fruitless;
    for (uint64_t epoch = cursor->epoch; !is_last_epoch_over(piece_source, epoch);
         epoch++, position = 0) {
        rp_order_enter(&order, epoch);
        while (position < order.documents) {
            uint64_t document[RP_ORDER_READ_MAX];
            uint32_t count = rp_order_read(&order, position, document);
            for (uint32_t i = 0; i < count; i++, fruitless++)
                if (can_never_deliver(piece_source, s, &fruitless) ||
                    gives_token(piece_source, source->length(source->lengths, document[i])))
                    return true;
            position += count;
        }
    }
    return false;
}

/* The answer is kept, because it is needed before every row, also while the cursor does not move.
 */
static bool cursor_has_more(const struct rp_piece_source *piece_source, uint32_t s)
{
    struct rp_cursor *cursor = &piece_source->cursors[s];
    bool is_known = cursor->is_answered && cursor->answer_epoch == cursor->epoch &&
                    cursor->answer_position == cursor->position;
    if (!is_known) {
        cursor->has_more = search_ahead(piece_source, s);
        cursor->is_answered = true;
        cursor->answer_epoch = cursor->epoch;
        cursor->answer_position = cursor->position;
    }
    return cursor->has_more;
}

bool rp_piece_source_has_more(const struct rp_piece_source *piece_source)
{
    if (piece_source->config->num_epochs == 0)
        return true;
    for (uint32_t s = 0; s < piece_source->source_count; s++)
        if (!piece_source->finished[s] && cursor_has_more(piece_source, s))
            return true;
    return false;
}
