/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/v2/feed_ahead.h"

#include "base/bits.h"

/* The last item of a pass is not plain; the first one is visited when its batch is read. */
void rp_feed_update_plain(struct rp_feed_source *own)
{
    uint32_t next = own->ahead_next, end = own->ahead_count;
    own->plain = 0;
    if (next == end || own->is_exhausted || own->is_atomic || own->is_trimmed || own->has_out)
        return;
    end -= own->state.position + (end - next) == own->items;
    if (next < end)
        own->plain = own->wanted & UINT64_MAX << next & UINT64_MAX >> (64 - end);
}

static void enter_pass(const struct rp_feed *feed, struct rp_feed_source *own)
{
    const struct rp_stream_fixed *fixed = feed->fixed;
    uint64_t number = (uint64_t)own->state.epoch << 8 | own->state.pass;
    if (own->order_items != own->items) {
        rp_order_init_items(&own->order, fixed->shuffle, own->items,
                            fixed->block_documents / feed->group, fixed->window_blocks);
        own->order_items = own->items;
    }
    if (!own->order.entered || own->order.epoch != number)
        rp_order_enter_key(
            &own->order, number,
            rp_pass_key_make(fixed->seed, own->name_hash, own->state.epoch, own->state.pass));
}

/* Counts of a batch of items. If one is damaged, the batch ends before it. */
static int read_counts(const struct rp_feed *feed, struct rp_feed_source *own,
                       const uint64_t *documents, uint8_t *counts, struct rp_error *error)
{
    const struct rp_source_view *view = &own->source->view;
    uint32_t group = feed->group, items = own->ahead_count;
    if (view->counts(view->context, documents, items * group, counts, NULL) == 0)
        return 0;
    for (uint32_t i = 0; i < items; i++) {
        int failed = view->counts(view->context, documents + i * group, group, counts + i * group,
                                  i == 0 ? error : NULL);
        if (failed < 0) {
            own->ahead_count = i;
            return i == 0 ? failed : 0;
        }
    }
    return 0;
}

/* Bit i: whether count i is above the pass. A product gathers the lowest bits of 8 bytes. */
static uint64_t bits_above(const uint8_t counts[RP_FEED_AHEAD], uint8_t pass)
{
    uint8_t is_above[RP_FEED_AHEAD];
    uint64_t bits = 0;
    for (uint32_t i = 0; i < RP_FEED_AHEAD; i++)
        is_above[i] = counts[i] > pass;
    for (uint32_t i = 0; i < RP_FEED_AHEAD; i += 8)
        bits |= rp_load_u64(is_above + i) * UINT64_C(0x0102040810204080) >> 56 << i;
    return bits;
}

/* A group is wanted if all of its documents are. */
static int read_wanted(const struct rp_feed *feed, struct rp_feed_source *own,
                       const uint64_t *documents, struct rp_error *error)
{
    uint8_t pass = own->state.pass, counts[RP_FEED_AHEAD] = {0};
    uint32_t group = feed->group;
    own->wanted = pass == 0 ? UINT64_MAX : 0;
    if (!own->source->view.counts)
        return 0;
    int failed = read_counts(feed, own, documents, counts, error);
    if (failed < 0)
        return failed;
    uint64_t bits = bits_above(counts, pass), all = UINT64_MAX >> (64 - group);
    own->wanted = group == 1 ? bits & UINT64_MAX >> (64 - own->ahead_count) : 0;
    for (uint32_t i = 0; group > 1 && i < own->ahead_count; i++)
        own->wanted |= (uint64_t)((bits >> i * group & all) == all) << i;
    return 0;
}

static void insert_tokens(const struct rp_feed *feed, uint64_t *lengths, uint32_t count)
{
    for (uint32_t i = 0; feed->inserted > 0 && i < count; i++)
        if (lengths[i] != 0 && lengths[i] != RP_LENGTH_BAD)
            lengths[i] += feed->inserted;
}

/* Lengths of the documents that the batch takes: a look-up costs a cache miss. */
static void read_lengths(const struct rp_feed *feed, struct rp_feed_source *own,
                         const uint64_t *documents)
{
    const struct rp_source_view *view = &own->source->view;
    uint64_t taken[RP_FEED_AHEAD], lengths[RP_FEED_AHEAD];
    uint32_t count = 0, items = own->ahead_count;
    if (!view->counts || feed->group > 1) {
        view->lengths(view->context, documents, items * feed->group, own->ahead_length);
        insert_tokens(feed, own->ahead_length, items * feed->group);
        return;
    }
    for (uint64_t left = own->wanted; left; left &= left - 1)
        taken[count++] = documents[__builtin_ctzll(left)];
    if (count > 0)
        view->lengths(view->context, taken, count, lengths);
    insert_tokens(feed, lengths, count);
    count = 0;
    for (uint64_t left = own->wanted; left; left &= left - 1)
        own->ahead_length[__builtin_ctzll(left)] = lengths[count++];
}

int rp_feed_read_ahead(const struct rp_feed *feed, struct rp_feed_source *own,
                       struct rp_error *error)
{
    uint64_t of_groups[RP_FEED_AHEAD], *documents = own->ahead_item;
    enter_pass(feed, own);
    own->ahead_next = 0;
    own->ahead_count = rp_order_read(&own->order, own->state.position, own->ahead_item);
    if (feed->group > 1) {
        uint32_t items = RP_FEED_AHEAD / feed->group;
        own->ahead_count = own->ahead_count < items ? own->ahead_count : items;
        documents = of_groups;
        for (uint32_t i = 0; i < own->ahead_count * feed->group; i++)
            documents[i] = own->ahead_item[i / feed->group] * feed->group + i % feed->group;
    }
    int failed = read_wanted(feed, own, documents, error);
    if (failed < 0)
        return failed;
    read_lengths(feed, own, documents);
    rp_feed_update_plain(own);
    return 0;
}
