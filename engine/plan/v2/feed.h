/* SPDX-License-Identifier: Apache-2.0 */
/* feed.h — the next item of the mixture, as a piece (STREAM2.md sections 3 to 6).
 *
 * A feed has the state of all sources that have joined, and the counts of the stream. Items are
 * visited in batches: 64 positions of a source are permuted and looked up together, because then
 * their multiplications and cache misses overlap. Damage of an item that was only read ahead is
 * reported when the item is visited. */
#ifndef RP_PLAN_V2_FEED_H
#define RP_PLAN_V2_FEED_H

#include "plan/order.h"
#include "plan/v2/calendar.h"
#include "plan/v2/choosing.h"
#include "plan/v2/state.h"

#define RP_FEED_AHEAD RP_ORDER_READ_MAX
RP_STATIC_ASSERT(RP_FEED_AHEAD <= 64, "a batch has a bit for each item");

struct rp_feed_source {
    const struct rp_stream_source *source; /* NULL: it left the config */
    struct rp_source_state state;          /* an active source's credit is in feed->choosing */
    struct rp_limits limits;               /* in force */
    uint64_t items;                        /* in an epoch of state.documents */
    uint64_t begun_in; /* the call of rp_feed_next that visited the epoch's first item */
    uint16_t number;
    bool is_exhausted, is_atomic, is_trimmed;
    bool has_out; /* some document of it is in `without` */

    uint64_t name_hash;
    struct rp_order order;
    uint64_t order_items; /* 0: not made yet */

    /* Items that follow in this pass; with groups, `group` lengths for each item. */
    uint32_t ahead_next, ahead_count;
    uint64_t plain; /* those that rp_feed_next takes at once; it passes over items between them */
    uint64_t tokens_end; /* t at which max_tokens is reached */
    uint64_t wanted;     /* bits of the items that this pass takes, but for `without` */
    uint64_t ahead_item[RP_FEED_AHEAD];
    uint64_t ahead_length[RP_FEED_AHEAD]; /* lengths of wanted ones */
};

struct rp_feed {
    const struct rp_calendar *calendar;
    const struct rp_stream_fixed *fixed;
    uint32_t group;    /* k */
    uint32_t inserted; /* tokens: [BOS] + [EOS] */
    uint32_t capacity, source_count;
    struct rp_feed_source *sources;
    struct rp_stream_counts counts;
    bool is_stopped;

    /* In force at the row that is being planned. */
    const struct rp_stage *stage;
    uint64_t row, next_change;           /* the first row at which anything here may change */
    uint64_t plain_max;                  /* the most tokens of a plain item */
    uint64_t *nominal, *wanted, *shares; /* by number */
    const struct rp_limits *limits;      /* a token's, in place of the calendar's; NULL: none */
    uint32_t limits_count;
    uint64_t limits_end;

    struct rp_choosing choosing;
    bool is_stale;  /* the active sources, or their shares, may have changed */
    bool is_dry;    /* rp_feed_next gave none in this row */
    uint64_t calls; /* so far, to rp_feed_next */
};

RP_MUST_CHECK int rp_feed_open(struct rp_feed *feed, const struct rp_calendar *calendar,
                               struct rp_error *error);
void rp_feed_close(struct rp_feed *feed);

/** Take over what is in force at a row. Sources that join there get no state by this. */
void rp_feed_change(struct rp_feed *feed);
static inline void rp_feed_begin_row(struct rp_feed *feed, uint64_t row)
{
    feed->row = row;
    feed->is_dry = false;
    if (row >= feed->next_change || !feed->stage)
        rp_feed_change(feed);
}
/** Give the sources below stage->joined that have no state yet their first one. */
void rp_feed_join(struct rp_feed *feed);

/** The states of all source_count sources, with their credits. */
void rp_feed_states(const struct rp_feed *feed, struct rp_source_state *states);
/** Replace the states of all sources. rp_feed_begin_row must follow. */
void rp_feed_restore(struct rp_feed *feed, const struct rp_source_state *states, uint32_t count);

/* The plain item that is next; NULL: none, or it is not known yet. Most items are plain: of a
 * source with the right to give them, read ahead, selected, cut nowhere, not the last of a pass. */
static inline struct rp_feed_source *rp_feed_plain(const struct rp_feed *feed)
{
    if (feed->is_stale || feed->is_stopped || feed->choosing.count == 0)
        return NULL;
    struct rp_feed_source *own = &feed->sources[rp_choosing_first(&feed->choosing)];
    bool is_plain = own->plain != 0 &&
                    own->ahead_length[__builtin_ctzll(own->plain)] - 1 < feed->plain_max;
    return is_plain ? own : NULL;
}

void rp_feed_update_exhausted(struct rp_feed *feed, struct rp_feed_source *own);
/** rp_feed_next (feed_next.h), whatever the next item is. */
RP_MUST_CHECK int rp_feed_visit(struct rp_feed *feed, struct rp_item_piece *piece, uint32_t *size,
                                struct rp_error *error);

#endif
