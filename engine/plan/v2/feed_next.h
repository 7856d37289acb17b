/* SPDX-License-Identifier: Apache-2.0 */
/* feed_next.h — the next piece, for the packings. It is inlined for plain items, which are most. */
#ifndef RP_PLAN_V2_FEED_NEXT_H
#define RP_PLAN_V2_FEED_NEXT_H

#include "plan/v2/feed_pieces.h"

/** The next piece: 1 with *piece and its *size, or 0 at the end. Errors: -RP_E_CORRUPT,
 * -RP_E_EMPTY, -RP_E_CONFIG; after one the feed is between two states. */
static inline int rp_feed_next(struct rp_feed *feed, struct rp_item_piece *piece, uint32_t *size,
                               struct rp_error *error)
{
    struct rp_feed_source *own = rp_feed_plain(feed);
    if (!own)
        return rp_feed_visit(feed, piece, size, error);
    uint32_t i = (uint32_t)__builtin_ctzll(own->plain), passed = i - own->ahead_next;
    uint32_t tokens = (uint32_t)own->ahead_length[i];
    own->plain &= own->plain - 1;
    own->ahead_next = i + 1;
    own->state.position += passed + 1;
    feed->counts.passed_over += passed;
    feed->counts.documents++;
    feed->counts.tokens_read += tokens;
    *piece = (struct rp_item_piece){own->ahead_item[i], 0, tokens, own->state.epoch, own->number,
                                    own->state.pass,    0};
    *size = rp_feed_round(feed, tokens);
    feed->is_stale |= rp_choosing_charge(&feed->choosing, tokens);
    own->state.tokens += tokens;
    own->state.taken++;
    if (own->state.tokens >= own->tokens_end)
        rp_feed_update_exhausted(feed, own);
    return 1;
}

#endif
