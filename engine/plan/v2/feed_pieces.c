/* SPDX-License-Identifier: Apache-2.0 */
/* feed_pieces.c — sizes, labels and trimming of pieces (STREAM2.md section 5). */
#include <inttypes.h>

#include "plan/v2/feed_pieces.h"

static int fail_damaged(const struct rp_feed *feed, uint32_t source, uint64_t document,
                        struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT,
                   "rows delivered so far are valid; repair or rebuild this source's index",
                   "source %s: the index entry of document %" PRIu64 " is damaged",
                   rp_calendar_source_name(feed->calendar, source), document);
}

int rp_feed_lengths(const struct rp_feed *feed, uint32_t source, uint64_t item, uint64_t *lengths,
                    struct rp_error *error)
{
    const struct rp_source_view *view = &feed->sources[source].source->view;
    uint64_t documents[RP_GROUP_MAX];
    for (uint32_t i = 0; i < feed->group; i++)
        documents[i] = item * feed->group + i;
    view->lengths(view->context, documents, feed->group, lengths);
    for (uint32_t i = 0; i < feed->group; i++) {
        if (lengths[i] == RP_LENGTH_BAD)
            return fail_damaged(feed, source, documents[i], error);
        lengths[i] += lengths[i] > 0 ? feed->inserted : 0;
    }
    return 0;
}

int rp_feed_size(const struct rp_feed *feed, const struct rp_item_piece *piece, uint64_t *size,
                 struct rp_error *error)
{
    if (feed->group == 1) {
        *size = rp_feed_round(feed, piece->length);
        return 0;
    }
    uint64_t lengths[RP_GROUP_MAX];
    int failed = rp_feed_lengths(feed, piece->source, piece->item, lengths, error);
    if (failed < 0)
        return failed;
    *size = 0;
    for (uint32_t i = 0; i < feed->group; i++)
        *size += rp_div_up(lengths[i], feed->stage->align) * feed->stage->align;
    return 0;
}

int rp_feed_labelled_masked(const struct rp_feed *feed, const struct rp_item_piece *piece,
                            uint32_t tokens, struct rp_error *error)
{
    const struct rp_source_view *view = &feed->sources[piece->source].source->view;
    if (feed->group == 1)
        return view->labelled(view->context, piece->item, piece->offset, tokens, error);
    uint64_t lengths[RP_GROUP_MAX];
    int found = rp_feed_lengths(feed, piece->source, piece->item, lengths, error);
    for (uint32_t i = 0; i < feed->group && found == 0; i++)
        found = view->labelled(view->context, piece->item * feed->group + i, 0,
                               (uint32_t)lengths[i], error);
    return found;
}

void rp_feed_leave_out(struct rp_feed *feed, struct rp_item_piece *piece, uint32_t tokens)
{
    rp_feed_withhold(feed, &feed->counts.left_out, piece, tokens);
    piece->offset += tokens;
    piece->length -= tokens;
}

int rp_feed_trim_masked(struct rp_feed *feed, struct rp_item_piece *piece, struct rp_error *error)
{
    uint32_t row = feed->stage->seq_len;
    int found = 1;
    bool may_cut = !rp_feed_is_atomic(feed, piece->source);
    while (may_cut && piece->length > row) {
        found = rp_feed_labelled(feed, piece, row, error);
        if (found != 0)
            return found;
        rp_feed_leave_out(feed, piece, row);
    }
    if (piece->length == 0)
        return 0;
    found = rp_feed_labelled(feed, piece, piece->length, error);
    if (found == 0)
        rp_feed_leave_out(feed, piece, piece->length);
    return found;
}

bool rp_feed_is_out(const struct rp_feed *feed, uint32_t source, uint64_t item)
{
    if (!feed->sources[source].has_out)
        return false;
    for (uint32_t i = 0; i < feed->group; i++)
        if (rp_calendar_is_out(feed->calendar, source, item * feed->group + i, feed->row))
            return true;
    return false;
}

int rp_feed_fail_too_long(const struct rp_feed *feed, uint32_t source, uint64_t item, uint64_t size,
                          struct rp_error *error)
{
    return rp_fail(error, -RP_E_CONFIG,
                   "raise seq_len, or set too_long: drop (or truncate) for this source",
                   "source %s: %s %" PRIu64 " takes %" PRIu64 " places of a row of %" PRIu32
                   ", and is never cut",
                   rp_calendar_source_name(feed->calendar, source),
                   feed->group > 1 ? "group" : "document", item, size, feed->stage->seq_len);
}
