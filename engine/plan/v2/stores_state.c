/* SPDX-License-Identifier: Apache-2.0 */
/* stores_state.c — the whole state as a snapshot, back from one, and the actions at a boundary
 * (STREAM2.md sections 9.2, 12.1). */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "plan/v2/stores.h"

/* ---- snapshots ------------------------------------------------------------------------------- */

void rp_snapshot_free(struct rp_snapshot *snapshot)
{
    free(snapshot->sources);
    free(snapshot->fifo);
    free(snapshot->pool);
    free(snapshot->open);
    free(snapshot->open_pieces);
    *snapshot = (struct rp_snapshot){0};
}

int rp_snapshot_resize(struct rp_snapshot *snapshot, struct rp_error *error)
{
    struct rp_snapshot wanted = *snapshot;
    wanted.sources = rp_calloc(wanted.source_count, sizeof *wanted.sources);
    wanted.fifo = rp_calloc(wanted.fifo_count, sizeof *wanted.fifo);
    wanted.pool = rp_calloc(wanted.pool_count, sizeof *wanted.pool);
    wanted.open = rp_calloc(wanted.open_count, sizeof *wanted.open);
    wanted.open_pieces = rp_calloc(wanted.open_piece_count, sizeof *wanted.open_pieces);
    rp_snapshot_free(snapshot);
    *snapshot = wanted;
    if (wanted.sources && wanted.fifo && wanted.pool && wanted.open && wanted.open_pieces)
        return 0;
    rp_snapshot_free(snapshot);
    return rp_fail(
        error, -ENOMEM, "a smaller packing_buffer or open_bins, or fewer sources, need less memory",
        "no memory for the state of %" PRIu32 " sources and %" PRIu64 " waiting documents",
        wanted.source_count,
        (uint64_t)wanted.fifo_count + wanted.pool_count + wanted.open_piece_count);
}

void rp_stores_saved_free(struct rp_stores_saved *saved)
{
    rp_snapshot_free(&saved->snapshot);
    *saved = (struct rp_stores_saved){0};
}

void rp_stores_measure(const struct rp_stores *stores, struct rp_snapshot *snapshot)
{
    snapshot->source_count = stores->feed.source_count;
    snapshot->fifo_count = rp_stores_fifo_count(stores);
    snapshot->pool_count = stores->pool_count;
    snapshot->open_count = stores->open.count;
    snapshot->open_piece_count = 0;
    uint16_t slot = rp_stores_oldest_row(stores);
    for (; slot != RP_WINDOW_NONE; slot = rp_window_newer(&stores->open, slot))
        snapshot->open_piece_count += stores->rows[slot].count;
}

static void copy_pool(const struct rp_stores *stores, struct rp_snapshot *snapshot)
{
    memcpy(snapshot->pool, stores->pool, stores->pool_count * sizeof *snapshot->pool);
    for (uint32_t i = 0; i < stores->pool_count; i++) {
        const struct rp_pool_place *place = &stores->places[i];
        snapshot->pool[place->entry].turn = (uint32_t)(place->turn - stores->pool_turn);
    }
}

static void copy_open_rows(const struct rp_stores *stores, struct rp_snapshot *snapshot)
{
    uint32_t rows = 0, pieces = 0;
    uint16_t slot = rp_stores_oldest_row(stores);
    for (; slot != RP_WINDOW_NONE; slot = rp_window_newer(&stores->open, slot)) {
        const struct rp_waiting_row *row = &stores->rows[slot];
        snapshot->open[rows++] = (struct rp_open_row_state){row->opened_at, row->count};
        for (uint32_t node = row->first; node != 0; node = stores->nodes[node].next)
            snapshot->open_pieces[pieces++] = stores->nodes[node].piece;
    }
}

void rp_stores_copy(const struct rp_stores *stores, struct rp_snapshot *snapshot)
{
    snapshot->pool_row = stores->pool_row;
    snapshot->longest = stores->feed.choosing.longest;
    snapshot->stopped = stores->feed.is_stopped;
    snapshot->counts = stores->feed.counts;
    rp_feed_states(&stores->feed, snapshot->sources);
    if (stores->packing == RP_PACKING_LOOKAHEAD) {
        uint16_t slot = rp_window_oldest(&stores->window);
        for (uint32_t i = 0; i < snapshot->fifo_count; i++) {
            snapshot->fifo[i] = stores->fifo[slot];
            slot = rp_window_newer(&stores->window, slot);
        }
    } else {
        memcpy(snapshot->fifo, stores->fifo + stores->head,
               stores->queued * sizeof *snapshot->fifo);
    }
    copy_pool(stores, snapshot);
    copy_open_rows(stores, snapshot);
}

/* Give a saved state room for the counts of its snapshot. */
static int grow(struct rp_stores_saved *saved, struct rp_error *error)
{
    struct rp_snapshot *snapshot = &saved->snapshot;
    int failed = rp_snapshot_resize(snapshot, error);
    saved->sources = snapshot->source_count;
    saved->fifo = snapshot->fifo_count;
    saved->pool = snapshot->pool_count;
    saved->open = snapshot->open_count;
    saved->open_pieces = snapshot->open_piece_count;
    return failed;
}

int rp_stores_saved_reserve(struct rp_stores_saved *saved, uint32_t sources, struct rp_error *error)
{
    saved->snapshot.source_count = sources;
    return grow(saved, error);
}

int rp_stores_save(const struct rp_stores *stores, struct rp_stores_saved *saved,
                   struct rp_error *error)
{
    struct rp_snapshot *snapshot = &saved->snapshot;
    rp_stores_measure(stores, snapshot);
    if (!snapshot->sources || snapshot->source_count > saved->sources ||
        snapshot->fifo_count > saved->fifo || snapshot->pool_count > saved->pool ||
        snapshot->open_count > saved->open || snapshot->open_piece_count > saved->open_pieces) {
        int failed = grow(saved, error);
        if (failed < 0)
            return failed;
    }
    rp_stores_copy(stores, snapshot);
    return 0;
}

uint64_t rp_stores_waiting(const struct rp_stores *stores, uint32_t source)
{
    uint64_t tokens = 0;
    uint32_t queued = rp_stores_fifo_count(stores);
    uint16_t slot = stores->packing == RP_PACKING_LOOKAHEAD ? rp_window_oldest(&stores->window) : 0;
    for (uint32_t i = 0; i < queued; i++) {
        const struct rp_item_piece *piece = &stores->fifo[slot ? slot : stores->head + i];
        tokens += piece->source == source ? piece->length : 0;
        slot = slot ? rp_window_newer(&stores->window, slot) : 0;
    }
    for (uint32_t i = 0; i < stores->pool_count; i++) {
        const struct rp_item_piece *piece = &stores->pool[i].piece;
        tokens += piece->source == source ? piece->length : 0;
    }
    slot = rp_stores_oldest_row(stores);
    for (; slot != RP_WINDOW_NONE; slot = rp_window_newer(&stores->open, slot))
        for (uint32_t node = stores->rows[slot].first; node != 0; node = stores->nodes[node].next)
            if (stores->nodes[node].piece.source == source)
                tokens += stores->nodes[node].piece.length;
    return tokens;
}

/* ---- pieces of a snapshot -------------------------------------------------------------------- */

static int fail_state(const char *what, uint32_t number, struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, "use the state of another checkpoint",
                   "the state does not fit the stream: %s %" PRIu32, what, number);
}

/* The size of a piece that waits; 0 with no error: its document was taken out. */
static int measure_piece(struct rp_stores *stores, const struct rp_item_piece *piece,
                         bool takes_out, uint64_t *size, struct rp_error *error)
{
    struct rp_feed *feed = &stores->feed;
    *size = 0;
    if (piece->source >= feed->source_count || !feed->sources[piece->source].source)
        return fail_state("a piece is of source", piece->source, error);
    if (takes_out && rp_feed_is_out(feed, piece->source, piece->item)) {
        rp_feed_withhold(feed, &feed->counts.dropped, piece, piece->length);
        return 0;
    }
    return rp_feed_size(feed, piece, size, error);
}

static int fill_fifo(struct rp_stores *stores, const struct rp_snapshot *snapshot, bool takes_out,
                     struct rp_error *error)
{
    for (uint32_t i = 0; i < snapshot->fifo_count; i++) {
        uint64_t size;
        int failed = measure_piece(stores, &snapshot->fifo[i], takes_out, &size, error);
        if (failed < 0)
            return failed;
        bool may_be_long = stores->packing == RP_PACKING_CONCAT;
        if (snapshot->fifo[i].length == 0 || (size > stores->seq_len && !may_be_long))
            return fail_state("the length of FIFO piece", i, error);
        if (size > 0)
            rp_stores_push(stores, &snapshot->fifo[i], (uint32_t)size);
    }
    return 0;
}

static int fill_pool(struct rp_stores *stores, const struct rp_snapshot *snapshot, bool takes_out,
                     struct rp_error *error)
{
    for (uint32_t i = 0; i < snapshot->pool_count; i++) {
        const struct rp_pool_entry *entry = &snapshot->pool[i];
        uint64_t size;
        int failed = measure_piece(stores, &entry->piece, takes_out, &size, error);
        if (failed < 0)
            return failed;
        if (entry->piece.length <= stores->seq_len || entry->rows < 2)
            return fail_state("the length of pool entry", i, error);
        if (size > 0)
            rp_stores_add_entry(stores, entry);
    }
    stores->pool_row = stores->pool_count > 0 ? snapshot->pool_row : 0;
    return 0;
}

static int fill_open_row(struct rp_stores *stores, const struct rp_open_row_state *row,
                         const struct rp_item_piece *pieces, bool takes_out, struct rp_error *error)
{
    uint16_t slot = rp_stores_open_row(stores, row->opened_at, stores->seq_len);
    struct rp_waiting_row *own = &stores->rows[slot];
    for (uint32_t i = 0; i < row->pieces; i++) {
        uint64_t size;
        int failed = measure_piece(stores, &pieces[i], takes_out, &size, error);
        if (failed < 0)
            return failed;
        if (size >= own->gap || pieces[i].length == 0)
            return fail_state("the gap of the open row of slot", slot, error);
        if (size > 0)
            rp_stores_append(stores, slot, &pieces[i]);
        own->gap -= (uint32_t)size;
    }
    if (own->count == 0)
        rp_window_remove(&stores->open, slot);
    else
        rp_window_change(&stores->open, slot, own->gap);
    return 0;
}

/* Fill the empty stores as the snapshot has them, without pieces that were taken out. */
static int restore(struct rp_stores *stores, const struct rp_snapshot *snapshot, bool takes_out,
                   struct rp_error *error)
{
    int failed = fill_fifo(stores, snapshot, takes_out, error);
    if (failed == 0)
        failed = fill_pool(stores, snapshot, takes_out, error);
    const struct rp_item_piece *pieces = snapshot->open_pieces;
    for (uint32_t i = 0; i < snapshot->open_count && failed == 0; i++) {
        if (stores->packing != RP_PACKING_BEST_FIT || i >= stores->open.capacity)
            return fail_state("there is no place for open row", i, error);
        failed = rp_stores_reserve_fragments(stores, snapshot->open[i].pieces * stores->feed.group,
                                             error);
        if (failed < 0)
            return failed;
        failed = fill_open_row(stores, &snapshot->open[i], pieces, takes_out, error);
        pieces += snapshot->open[i].pieces;
    }
    return failed;
}

int rp_stores_restore(struct rp_stores *stores, const struct rp_snapshot *snapshot,
                      struct rp_error *error)
{
    if (snapshot->source_count > stores->feed.capacity)
        return fail_state("sources:", snapshot->source_count, error);
    rp_feed_restore(&stores->feed, snapshot->sources, snapshot->source_count);
    rp_stores_begin_row(stores, snapshot->row > 0 ? snapshot->row - 1 : 0);
    int failed = rp_stores_reserve(stores, stores->feed.stage, rp_snapshot_pieces(snapshot), error);
    if (failed < 0)
        return failed;
    rp_stores_clear(stores);
    failed = restore(stores, snapshot, false, error);
    stores->feed.counts = snapshot->counts;
    stores->feed.is_stopped = snapshot->stopped;
    stores->feed.choosing.longest = snapshot->longest;
    return failed;
}

/* ---- boundaries ------------------------------------------------------------------------------ */

static bool is_any_out(const struct rp_stores *stores, const struct rp_snapshot *before)
{
    const struct rp_feed *feed = &stores->feed;
    bool is_out = false;
    for (uint64_t i = 0; i < rp_snapshot_pieces(before) && !is_out; i++) {
        const struct rp_item_piece *piece = rp_snapshot_piece(before, i);
        is_out = rp_feed_is_out(feed, piece->source, piece->item);
    }
    return is_out;
}

static int enter_again(struct rp_stores *stores, struct rp_item_piece piece, struct rp_error *error)
{
    struct rp_feed *feed = &stores->feed;
    uint64_t size;
    int failed = measure_piece(stores, &piece, true, &size, error);
    if (failed < 0 || size == 0)
        return failed;
    bool is_atomic = rp_feed_is_atomic(feed, piece.source);
    if (is_atomic && size > stores->seq_len) {
        enum rp_too_long too_long = feed->sources[piece.source].source->too_long;
        if (too_long == RP_TOO_LONG_ERROR)
            return rp_feed_fail_too_long(feed, piece.source, piece.item, size, error);
        bool is_cut = too_long == RP_TOO_LONG_TRUNCATE;
        uint32_t kept = is_cut ? stores->seq_len : 0;
        rp_feed_withhold(feed, is_cut ? &feed->counts.truncated : &feed->counts.dropped, &piece,
                         piece.length - kept);
        if (!is_cut)
            return 0;
        piece.length = kept;
        size = kept;
    }
    int left = rp_feed_trim(feed, &piece, error);
    if (left <= 0)
        return left;
    if (!is_atomic)
        size = rp_feed_round(feed, piece.length);
    rp_stores_enter(stores, &piece, (uint32_t)size);
    return 0;
}

static int rebuild(struct rp_stores *stores, const struct rp_snapshot *before,
                   struct rp_error *error)
{
    int failed = rp_stores_reserve(stores, stores->feed.stage, rp_snapshot_pieces(before), error);
    if (failed < 0)
        return failed;
    rp_stores_clear(stores);
    stores->feed.counts.placed = 0;
    for (uint32_t i = 0; i < before->fifo_count && failed == 0; i++)
        failed = enter_again(stores, before->fifo[i], error);
    for (uint32_t i = 0; i < before->open_piece_count && failed == 0; i++)
        failed = enter_again(stores, before->open_pieces[i], error);
    for (uint32_t i = 0; i < before->pool_count && failed == 0; i++)
        failed = enter_again(stores, before->pool[i].piece, error);
    return failed;
}

int rp_stores_boundary(struct rp_stores *stores, const struct rp_snapshot *before,
                       struct rp_error *error)
{
    rp_feed_join(&stores->feed);
    stores->feed.is_stopped = false;
    if (stores->feed.stage->rebuilds)
        return rebuild(stores, before, error);
    if (!is_any_out(stores, before))
        return 0;
    rp_stores_clear(stores);
    return restore(stores, before, true, error);
}
