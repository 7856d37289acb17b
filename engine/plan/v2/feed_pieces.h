/* SPDX-License-Identifier: Apache-2.0 */
/* feed_pieces.h — sizes, labels and trimming of pieces (STREAM2.md section 5). */
#ifndef RP_PLAN_V2_FEED_PIECES_H
#define RP_PLAN_V2_FEED_PIECES_H

#include "plan/v2/feed.h"

static inline bool rp_feed_is_atomic(const struct rp_feed *feed, uint32_t source)
{
    return feed->sources[source].is_atomic;
}

/** Places of a fragment. */
static inline uint32_t rp_feed_round(const struct rp_feed *feed, uint32_t tokens)
{
    uint32_t align = feed->stage->align;
    return align == 1 ? tokens : (tokens + align - 1) / align * align;
}

/** Lengths, with inserted tokens, of the documents of an item: `group` of them. -RP_E_CORRUPT if
 * an index entry is damaged. */
RP_MUST_CHECK int rp_feed_lengths(const struct rp_feed *feed, uint32_t source, uint64_t item,
                                  uint64_t *lengths, struct rp_error *error);
/** The size of a piece. Fails for groups only. */
RP_MUST_CHECK int rp_feed_size(const struct rp_feed *feed, const struct rp_item_piece *piece,
                               uint64_t *size, struct rp_error *error);

/** Whether the first tokens of a piece are labelled: 1 or 0. */
RP_MUST_CHECK int rp_feed_labelled_masked(const struct rp_feed *feed,
                                          const struct rp_item_piece *piece, uint32_t tokens,
                                          struct rp_error *error);
static inline int rp_feed_labelled(const struct rp_feed *feed, const struct rp_item_piece *piece,
                                   uint32_t tokens, struct rp_error *error)
{
    if (!feed->sources[piece->source].is_trimmed)
        return 1;
    return rp_feed_labelled_masked(feed, piece, tokens, error);
}
/** Take tokens that are not labelled off a piece, and count them. */
void rp_feed_leave_out(struct rp_feed *feed, struct rp_item_piece *piece, uint32_t tokens);
/** Trim a piece: 1 if something of it is left, 0 if it is gone. */
RP_MUST_CHECK int rp_feed_trim_masked(struct rp_feed *feed, struct rp_item_piece *piece,
                                      struct rp_error *error);
static inline int rp_feed_trim(struct rp_feed *feed, struct rp_item_piece *piece,
                               struct rp_error *error)
{
    if (!feed->sources[piece->source].is_trimmed)
        return piece->length > 0;
    return rp_feed_trim_masked(feed, piece, error);
}
/** Count tokens of a waiting piece in `count` of feed->counts, and as withheld. */
static inline void rp_feed_withhold(struct rp_feed *feed, uint64_t *count,
                                    const struct rp_item_piece *piece, uint32_t tokens)
{
    *count += tokens;
    feed->sources[piece->source].state.withheld += tokens;
}
/** Whether a document of the item is in `without`. */
bool rp_feed_is_out(const struct rp_feed *feed, uint32_t source, uint64_t item);
/** Fail because an atomic item is too long for a row. */
RP_MUST_CHECK int rp_feed_fail_too_long(const struct rp_feed *feed, uint32_t source, uint64_t item,
                                        uint64_t size, struct rp_error *error);

#endif
