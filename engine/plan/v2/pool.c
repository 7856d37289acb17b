/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c — pieces longer than a row, which give whole rows in turn (STREAM2.md section 7).
 *
 * The turns are an array of their own, which is searched in vectors for each row of the pool. */
#include <string.h>

#include "base/bits.h"
#include "plan/v2/stores.h"

void rp_stores_enter_pool(struct rp_stores *stores, const struct rp_item_piece *piece)
{
    RP_ASSERT(stores->pool_count < stores->capacity);
    if (stores->pool_count == 0)
        stores->pool_row = stores->feed.row;
    stores->turns[stores->pool_count] = 0;
    stores->pool[stores->pool_count++] = (struct rp_pool_entry){
        .piece = *piece, .rows = (uint32_t)rp_div_up(piece->length, stores->seq_len)};
}

/* The oldest entry with the least turn, which is subtracted from all. */
static uint32_t choose(struct rp_stores *stores)
{
    uint32_t *turns = stores->turns, count = stores->pool_count, least = UINT32_MAX, chosen = 0;
    for (uint32_t i = 0; i < count; i++)
        least = turns[i] < least ? turns[i] : least;
    while (turns[chosen] != least)
        chosen++;
    for (uint32_t i = 0; i < count; i++)
        turns[i] -= least;
    return chosen;
}

static void remove_entry(struct rp_stores *stores, uint32_t number)
{
    uint32_t after = --stores->pool_count - number;
    memmove(stores->pool + number, stores->pool + number + 1, after * sizeof *stores->pool);
    memmove(stores->turns + number, stores->turns + number + 1, after * sizeof *stores->turns);
}

int rp_stores_pool_row(struct rp_stores *stores, struct rp_error *error)
{
    uint32_t chosen = choose(stores);
    struct rp_pool_entry *entry = &stores->pool[chosen];
    rp_draft_cut(stores, &entry->piece, stores->seq_len);
    stores->turns[chosen] += (uint32_t)((UINT64_C(1) << 32) / entry->rows);
    int left = rp_feed_trim(&stores->feed, &entry->piece, error);
    if (left < 0)
        return left;
    if (left == 0 || entry->piece.length <= stores->seq_len) {
        struct rp_item_piece rest = entry->piece;
        remove_entry(stores, chosen);
        if (left > 0)
            rp_stores_push(stores, &rest, rp_feed_round(&stores->feed, rest.length));
    }
    stores->pool_row = stores->pool_count > 0 ? stores->feed.row : 0;
    return 0;
}
