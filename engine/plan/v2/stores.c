/* SPDX-License-Identifier: Apache-2.0 */
/* stores.c — memory of the stores, the queue, open rows and the pool (stores.h). */
#include "plan/v2/stores.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"

/* ---- room ------------------------------------------------------------------------------------ */

static uint64_t pieces_of_stage(const struct rp_stage *stage, uint32_t group)
{
    if (stage->packing == RP_PACKING_CONCAT)
        return 1;
    uint64_t waiting = (uint64_t)stage->window + stage->spread;
    if (stage->packing != RP_PACKING_BEST_FIT)
        return waiting;
    uint64_t in_row = stage->max_docs_per_row / group;
    return waiting + stage->window * rp_min_u64(in_row, RP_AGE_MAX_W + 1);
}

static int check_window(const struct rp_stage *stage, uint64_t pieces, struct rp_error *error)
{
    if (stage->packing != RP_PACKING_LOOKAHEAD || pieces <= RP_WINDOW_ITEMS_MAX)
        return 0;
    return rp_fail(error, -RP_E_CONFIG,
                   "lower open_bins or max_docs_per_row of the stages with best_fit before it",
                   "the stage from row %" PRIu64
                   ": packing lookahead may have to begin with %" PRIu64
                   " waiting documents; it can search %u",
                   stage->from, pieces, RP_WINDOW_ITEMS_MAX);
}

static int fail_memory(uint64_t pieces, struct rp_error *error)
{
    return rp_fail(error, -ENOMEM,
                   "a smaller packing_buffer, open_bins or max_docs_per_row needs less memory",
                   "no memory for %" PRIu64 " waiting documents", pieces);
}

static void free_pieces(struct rp_stores *stores)
{
    free(stores->fifo);
    free(stores->fifo_sizes);
    free(stores->pool);
    free(stores->places);
    free(stores->nodes);
}

/* Room for `pieces` in each store. The stores are empty, or only grow. */
static int reserve_pieces(struct rp_stores *stores, uint32_t pieces, struct rp_error *error)
{
    if (pieces <= stores->capacity)
        return 0;
    free_pieces(stores);
    stores->capacity = 0;
    stores->fifo = rp_calloc(pieces + 1, sizeof *stores->fifo);
    stores->fifo_sizes = rp_calloc(pieces + 1, sizeof *stores->fifo_sizes);
    stores->pool = rp_calloc(pieces, sizeof *stores->pool);
    stores->places = rp_calloc(pieces, sizeof *stores->places);
    stores->nodes = rp_calloc(pieces + 1, sizeof *stores->nodes);
    if (!stores->fifo || !stores->fifo_sizes || !stores->pool || !stores->places || !stores->nodes)
        return fail_memory(pieces, error);
    stores->capacity = pieces;
    return 0;
}

static int reserve_window(struct rp_window *window, uint64_t items, bool older_is_greater,
                          struct rp_error *error)
{
    if (items <= window->capacity)
        return 0;
    rp_window_close(window);
    return rp_window_open(window, (uint32_t)items, older_is_greater, error);
}

static int reserve_rows(struct rp_stores *stores, uint32_t rows, struct rp_error *error)
{
    if (rows <= stores->open.capacity)
        return 0;
    free(stores->rows);
    stores->rows = rp_calloc(rows + 1, sizeof *stores->rows);
    if (!stores->rows)
        return fail_memory(rows, error);
    return reserve_window(&stores->open, rows, false, error);
}

int rp_stores_reserve_fragments(struct rp_stores *stores, uint32_t fragments,
                                struct rp_error *error)
{
    if (fragments <= stores->fragments_capacity)
        return 0;
    free(stores->draft.fragments);
    free(stores->draft.epochs);
    stores->fragments_capacity = 0;
    stores->draft.fragments = rp_calloc(fragments, sizeof *stores->draft.fragments);
    stores->draft.epochs = rp_calloc(fragments, sizeof *stores->draft.epochs);
    if (!stores->draft.fragments || !stores->draft.epochs)
        return rp_fail(error, -ENOMEM, "a smaller max_docs_per_row needs less memory",
                       "no memory for a row of %" PRIu32 " documents", fragments);
    stores->fragments_capacity = fragments;
    return 0;
}

int rp_stores_reserve(struct rp_stores *stores, const struct rp_stage *stage, uint64_t pieces,
                      struct rp_error *error)
{
    pieces = rp_max_u64(pieces, pieces_of_stage(stage, stores->feed.group));
    int failed = check_window(stage, pieces, error);
    if (failed == 0 && pieces >= UINT32_MAX / 64)
        failed = fail_memory(pieces, error);
    if (failed == 0)
        failed = reserve_pieces(stores, (uint32_t)pieces, error);
    if (failed == 0 && stage->packing == RP_PACKING_LOOKAHEAD)
        failed = reserve_window(&stores->window, pieces, true, error);
    if (failed == 0 && stage->packing == RP_PACKING_BEST_FIT)
        failed = reserve_rows(stores, stage->window, error);
    if (failed == 0)
        failed = rp_stores_reserve_fragments(stores, stage->max_docs_per_row, error);
    return failed;
}

int rp_stores_open(struct rp_stores *stores, const struct rp_calendar *calendar,
                   struct rp_error *error)
{
    *stores = (struct rp_stores){0};
    int failed = rp_feed_open(&stores->feed, calendar, error);
    uint64_t row = 0, pieces = 0;
    do {
        if (failed < 0)
            break;
        const struct rp_stage *stage = rp_calendar_at(calendar, row);
        pieces = rp_max_u64(pieces, pieces_of_stage(stage, stores->feed.group));
        failed = rp_stores_reserve(stores, stage, pieces, error);
        row = rp_calendar_next(calendar, row);
    } while (row != RP_NO_ROW);
    if (failed < 0) {
        rp_stores_close(stores);
        return failed;
    }
    rp_stores_begin_row(stores, 0);
    rp_feed_join(&stores->feed);
    rp_stores_clear(stores);
    return 0;
}

void rp_stores_close(struct rp_stores *stores)
{
    rp_feed_close(&stores->feed);
    free_pieces(stores);
    free(stores->rows);
    free(stores->draft.fragments);
    free(stores->draft.epochs);
    rp_window_close(&stores->window);
    rp_window_close(&stores->open);
    *stores = (struct rp_stores){0};
}

/* ---- rows ------------------------------------------------------------------------------------ */

void rp_stores_change(struct rp_stores *stores)
{
    const struct rp_stage *stage = stores->feed.stage;
    stores->seq_len = stage->seq_len;
    stores->window_max = stage->window;
    stores->spread = stage->spread;
    stores->pieces_max = stage->max_docs_per_row / stores->feed.group;
    stores->packing = stage->packing;
    stores->row_gap = stage->row_gap;
}

void rp_stores_clear(struct rp_stores *stores)
{
    stores->head = stores->queued = stores->pool_count = 0;
    stores->pool_row = stores->pool_turn = 0;
    if (stores->window.capacity > 0)
        rp_window_clear(&stores->window);
    if (stores->open.capacity > 0)
        rp_window_clear(&stores->open);
    for (uint32_t node = 1; node < stores->capacity; node++)
        stores->nodes[node].next = node + 1;
    stores->nodes[stores->capacity].next = 0;
    stores->node_free = 1;
}

/* ---- FIFO, pool, open rows ------------------------------------------------------------------- */

void rp_stores_make_room(struct rp_stores *stores)
{
    RP_ASSERT(stores->queued <= stores->capacity);
    memmove(stores->fifo, stores->fifo + stores->head, stores->queued * sizeof *stores->fifo);
    memmove(stores->fifo_sizes, stores->fifo_sizes + stores->head,
            stores->queued * sizeof *stores->fifo_sizes);
    stores->head = 0;
}

uint16_t rp_stores_open_row(struct rp_stores *stores, uint64_t opened_at, uint32_t gap)
{
    uint16_t slot = rp_window_add(&stores->open, gap);
    stores->rows[slot] = (struct rp_waiting_row){.opened_at = opened_at, .gap = gap};
    return slot;
}

void rp_stores_append(struct rp_stores *stores, uint16_t slot, const struct rp_item_piece *piece)
{
    struct rp_waiting_row *row = &stores->rows[slot];
    uint32_t node = stores->node_free;
    RP_ASSERT(node != 0);
    stores->node_free = stores->nodes[node].next;
    stores->nodes[node] = (struct rp_piece_node){.piece = *piece};
    if (row->count++ == 0)
        row->first = node;
    else
        stores->nodes[row->last].next = node;
    row->last = node;
}

/* ---- the draft ------------------------------------------------------------------------------- */

int rp_draft_take_group(struct rp_stores *stores, const struct rp_item_piece *piece, uint32_t size,
                        struct rp_error *error)
{
    struct rp_row_draft *draft = &stores->draft;
    uint32_t group = stores->feed.group;
    uint64_t lengths[RP_GROUP_MAX];
    int failed = rp_feed_lengths(&stores->feed, piece->source, piece->item, lengths, error);
    if (failed < 0)
        return failed;
    for (uint32_t i = 0; i < group; i++) {
        draft->epochs[draft->count] = piece->epoch;
        draft->fragments[draft->count++] = (struct rp_fragment){
            piece->item * group + i, 0, piece->source, (uint32_t)lengths[i]};
    }
    draft->pieces++;
    draft->tokens += piece->length;
    draft->gap -= size;
    return 0;
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* Steps over entries with later turns: few for an entry that is new, whose turn is 0. */
static void insert(struct rp_stores *stores, struct rp_pool_place place)
{
    struct rp_pool_place *places = stores->places;
    uint32_t at = stores->pool_count++;
    while (at > 0 && (places[at - 1].turn < place.turn ||
                      (places[at - 1].turn == place.turn && places[at - 1].entry < place.entry))) {
        places[at] = places[at - 1];
        at--;
    }
    places[at] = place;
}

/* Later entries move up: a state token has all of them, in this order, for every batch. */
static void remove_entry(struct rp_stores *stores, uint32_t entry)
{
    memmove(stores->pool + entry, stores->pool + entry + 1,
            (stores->pool_count - entry) * sizeof *stores->pool);
    for (uint32_t i = 0; i < stores->pool_count; i++)
        stores->places[i].entry -= stores->places[i].entry > entry;
}

/** Append an entry to the pool. */
void rp_stores_add_entry(struct rp_stores *stores, const struct rp_pool_entry *entry)
{
    RP_ASSERT(stores->pool_count < stores->capacity);
    stores->pool[stores->pool_count] = *entry;
    insert(stores, (struct rp_pool_place){stores->pool_turn + entry->turn, stores->pool_count});
}

void rp_stores_enter_pool(struct rp_stores *stores, const struct rp_item_piece *piece)
{
    if (stores->pool_count == 0)
        stores->pool_row = stores->feed.row;
    rp_stores_add_entry(
        stores, &(struct rp_pool_entry){
                    .piece = *piece, .rows = (uint32_t)rp_div_up(piece->length, stores->seq_len)});
}

int rp_stores_pool_row(struct rp_stores *stores, struct rp_error *error)
{
    struct rp_pool_place place = stores->places[--stores->pool_count];
    struct rp_pool_entry *entry = &stores->pool[place.entry];
    stores->pool_turn = place.turn;
    place.turn += (UINT64_C(1) << 32) / entry->rows;
    rp_draft_cut(stores, &entry->piece, stores->seq_len);
    int left = rp_feed_trim(&stores->feed, &entry->piece, error);
    if (left < 0)
        return left;
    if (left > 0 && entry->piece.length > stores->seq_len) {
        insert(stores, place);
    } else {
        if (left > 0)
            rp_stores_push(stores, &entry->piece,
                           rp_feed_round(&stores->feed, entry->piece.length));
        remove_entry(stores, place.entry);
    }
    stores->pool_row = stores->pool_count > 0 ? stores->feed.row : 0;
    return 0;
}
