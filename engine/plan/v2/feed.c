/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/v2/feed_ahead.h"
#include "plan/v2/feed_pieces.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"

static const char *name_of(const struct rp_feed *feed, uint32_t number)
{
    return rp_calendar_source_name(feed->calendar, number);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void open_source(struct rp_feed *feed, uint32_t number)
{
    struct rp_feed_source *own = &feed->sources[number];
    const struct rp_stream_source *source = rp_calendar_source(feed->calendar, number);
    const char *name = name_of(feed, number);
    own->source = source;
    own->number = (uint16_t)number;
    own->name_hash = rp_hash64(name, strlen(name));
    own->is_atomic = feed->group > 1 || (source && source->too_long != RP_TOO_LONG_CUT);
    own->is_trimmed = source && source->drop_untrained == RP_DROP_FRAGMENTS &&
                      source->view.labelled;
}

int rp_feed_open(struct rp_feed *feed, const struct rp_calendar *calendar, struct rp_error *error)
{
    uint32_t count = rp_calendar_source_count(calendar);
    const struct rp_stream_fixed *fixed = &rp_calendar_spec(calendar)->fixed;
    *feed = (struct rp_feed){
        .calendar = calendar,
        .fixed = fixed,
        .group = fixed->group,
        .inserted = (uint32_t)(fixed->bos_id != RP_NO_TOKEN_ID) +
                    (uint32_t)(fixed->eos_id != RP_NO_TOKEN_ID),
        .capacity = count,
        .sources = rp_calloc(count, sizeof *feed->sources),
        .nominal = rp_calloc(count, sizeof *feed->nominal),
        .wanted = rp_calloc(count, sizeof *feed->wanted),
        .shares = rp_calloc(count, sizeof *feed->shares),
    };
    int failed = 0;
    if (!feed->sources || !feed->nominal || !feed->wanted || !feed->shares)
        failed = rp_fail(error, -ENOMEM, "fewer sources need less memory",
                         "no memory for the positions of %" PRIu32 " sources", count);
    if (failed == 0)
        failed = rp_choosing_open(&feed->choosing, count, error);
    if (failed < 0) {
        rp_feed_close(feed);
        return failed;
    }
    for (uint32_t number = 0; number < count; number++)
        open_source(feed, number);
    return 0;
}

void rp_feed_close(struct rp_feed *feed)
{
    free(feed->sources);
    free(feed->nominal);
    free(feed->wanted);
    free(feed->shares);
    rp_choosing_close(&feed->choosing);
    *feed = (struct rp_feed){0};
}

/* ---- rows ------------------------------------------------------------------------------------ */

void rp_feed_update_exhausted(struct rp_feed *feed, struct rp_feed_source *own)
{
    const struct rp_limits *limits = &own->limits;
    bool is_exhausted = (limits->max_epochs > 0 && own->state.epoch >= limits->max_epochs) ||
                        (limits->max_tokens > 0 && own->state.tokens >= limits->max_tokens);
    feed->is_stale |= is_exhausted != own->is_exhausted;
    own->is_exhausted = is_exhausted;
    own->plain = is_exhausted ? 0 : own->plain;
}

static void update_source(struct rp_feed *feed, uint32_t number)
{
    struct rp_feed_source *own = &feed->sources[number];
    bool of_token = feed->limits && feed->row < feed->limits_end && number < feed->limits_count;
    own->limits = of_token ? feed->limits[number] : feed->stage->limits[number];
    own->has_out = own->source && rp_calendar_has_out(feed->calendar, number, feed->row);
    own->tokens_end = own->limits.max_tokens > 0 ? own->limits.max_tokens : UINT64_MAX;
    rp_feed_update_exhausted(feed, own);
    rp_feed_update_plain(own);
}

void rp_feed_change(struct rp_feed *feed)
{
    uint64_t row = feed->row;
    const struct rp_stage *before = feed->stage;
    feed->stage = rp_calendar_at(feed->calendar, row);
    feed->next_change = rp_min_u64(rp_calendar_next(feed->calendar, row),
                                   rp_calendar_shares(feed->calendar, row, feed->nominal));
    if (feed->limits && row < feed->limits_end)
        feed->next_change = rp_min_u64(feed->next_change, feed->limits_end);
    feed->plain_max = feed->fixed->long_doc == RP_LONG_DOC_SPLIT ? RP_PIECE_TOKENS_MAX
                                                                 : feed->stage->seq_len;
    bool is_ramp = feed->stage == before && row != feed->limits_end; /* only shares change */
    for (uint32_t number = 0; number < feed->source_count && !is_ramp; number++)
        update_source(feed, number);
    feed->is_stale = true;
}

static void count_items(const struct rp_feed *feed, struct rp_feed_source *own)
{
    own->items = feed->group == 1 ? own->state.documents : own->state.documents / feed->group;
}

void rp_feed_join(struct rp_feed *feed)
{
    for (; feed->source_count < feed->stage->joined; feed->source_count++) {
        uint32_t number = feed->source_count;
        struct rp_feed_source *own = &feed->sources[number];
        own->state = (struct rp_source_state){.documents = feed->stage->documents[number]};
        own->ahead_next = own->ahead_count = 0;
        own->plain = 0;
        own->begun_in = 0;
        own->is_exhausted = false;
        count_items(feed, own);
        update_source(feed, number);
        feed->is_stale = true;
    }
}

void rp_feed_states(const struct rp_feed *feed, struct rp_source_state *states)
{
    for (uint32_t number = 0; number < feed->source_count; number++)
        states[number] = feed->sources[number].state;
    for (uint32_t place = 0; place < feed->choosing.count; place++)
        states[feed->choosing.places[place].number].credit = rp_choosing_credit(&feed->choosing,
                                                                                place);
}

void rp_feed_restore(struct rp_feed *feed, const struct rp_source_state *states, uint32_t count)
{
    RP_ASSERT(count <= feed->capacity);
    feed->source_count = count;
    for (uint32_t number = 0; number < count; number++) {
        struct rp_feed_source *own = &feed->sources[number];
        own->state = states[number];
        own->ahead_next = own->ahead_count = 0;
        own->plain = 0;
        own->begun_in = 0;
        count_items(feed, own);
    }
    rp_choosing_clear(&feed->choosing);
    feed->stage = NULL;
    feed->next_change = 0;
}

/* ---- shares ---------------------------------------------------------------------------------- */

static void store_credits(struct rp_feed *feed)
{
    for (uint32_t place = 0; place < feed->choosing.count; place++)
        feed->sources[feed->choosing.places[place].number].state.credit = rp_choosing_credit(
            &feed->choosing, place);
    rp_choosing_clear(&feed->choosing);
}

/* The active sources and their shares (section 6.1). */
static int mix(struct rp_feed *feed, struct rp_error *error)
{
    store_credits(feed);
    uint32_t active = 0;
    for (uint32_t number = 0; number < feed->capacity; number++) {
        const struct rp_feed_source *own = &feed->sources[number];
        bool waits = number >= feed->source_count ||
                     (own->is_exhausted && own->limits.on_exhausted == RP_EXHAUSTED_CONTINUE);
        feed->wanted[number] = waits ? 0 : feed->nominal[number];
        active += feed->wanted[number] > 0;
    }
    feed->is_stale = false;
    if (active == 0)
        return 0;
    rp_apportion(feed->wanted, feed->capacity, feed->shares);
    for (uint32_t number = 0; number < feed->source_count; number++)
        if (feed->wanted[number] > 0)
            rp_choosing_add(&feed->choosing,
                            &(struct rp_choosing_source){number, feed->shares[number],
                                                         feed->sources[number].state.credit});
    if (rp_choosing_begin(&feed->choosing))
        return 0;
    const struct rp_choosing_place *far = &feed->choosing.places[feed->choosing.chosen];
    return rp_fail(error, -RP_E_CONFIG, "give this source a weight of its tokens' scale",
                   "source %s is %" PRId64 " tokens away from its shares, which is more than "
                   "mixing can count",
                   name_of(feed, far->number), far->distance / (INT64_C(1) << 32));
}

/* ---- visiting -------------------------------------------------------------------------------- */

static int end_pass(struct rp_feed *feed, uint32_t number, struct rp_error *error)
{
    struct rp_feed_source *own = &feed->sources[number];
    own->state.position = 0;
    if (++own->state.pass < own->source->passes)
        return 0;
    if (own->state.epoch >= UINT32_MAX - 1)
        return rp_fail(error, -RP_E_CONFIG, "begin a new stream",
                       "source %s has ended its last epoch: %" PRIu32, name_of(feed, number),
                       own->state.epoch);
    own->state.pass = 0;
    own->state.epoch++;
    own->state.before = own->state.documents;
    own->state.documents = feed->stage->documents[number];
    count_items(feed, own);
    rp_feed_update_exhausted(feed, own);
    return 0;
}

/* The tokens that are taken of an item that is atomic, or longer than a row; 0 if it is dropped.
 * `*size` is the size of the whole item, and becomes the size of the tokens that are taken. */
static int64_t shorten(struct rp_feed *feed, uint32_t number, uint64_t item, uint64_t tokens,
                       uint64_t *size, struct rp_error *error)
{
    const struct rp_feed_source *own = &feed->sources[number];
    uint64_t row = feed->stage->seq_len;
    bool is_dropped = feed->fixed->long_doc == RP_LONG_DOC_DROP;
    bool is_cut = feed->fixed->long_doc == RP_LONG_DOC_TRUNCATE;
    if (own->is_atomic) {
        if (*size <= row)
            return (int64_t)tokens;
        if (own->source->too_long == RP_TOO_LONG_ERROR)
            return rp_feed_fail_too_long(feed, number, item, *size, error);
        is_dropped = own->source->too_long == RP_TOO_LONG_DROP;
        is_cut = !is_dropped;
    }
    if (is_dropped) {
        feed->counts.dropped += tokens;
        return 0;
    }
    if (is_cut) {
        feed->counts.truncated += tokens - row;
        *size = row;
        return (int64_t)row;
    }
    if (tokens > RP_PIECE_TOKENS_MAX)
        return rp_fail(error, -RP_E_CONFIG,
                       "is the declared EOS the one that ends documents? `ringpack inspect` shows "
                       "the lengths; long_doc: truncate or drop takes the document out",
                       "source %s: document %" PRIu64 " has %" PRIu64 " tokens; at most %" PRIu32
                       " are planned",
                       name_of(feed, number), item, tokens, RP_PIECE_TOKENS_MAX);
    return (int64_t)tokens;
}

/* The tokens and the size of the group that was read ahead at place `i`; 0 tokens: a document of it
 * is empty. */
static int measure_group(struct rp_feed *feed, uint32_t number, uint32_t i, uint64_t *tokens,
                         uint64_t *size, struct rp_error *error)
{
    const struct rp_feed_source *own = &feed->sources[number];
    const uint64_t *lengths = own->ahead_length + i * feed->group;
    uint64_t align = feed->stage->align, sum = 0;
    bool is_empty = false;
    *size = 0;
    for (uint32_t d = 0; d < feed->group; d++) {
        if (lengths[d] == RP_LENGTH_BAD) /* looked up again for its message */
            return rp_feed_lengths(feed, number, own->ahead_item[i], (uint64_t[RP_GROUP_MAX]){0},
                                   error);
        is_empty |= lengths[d] == 0;
        sum += lengths[d];
        *size += rp_div_up(lengths[d], align) * align;
    }
    feed->counts.documents += feed->group;
    feed->counts.tokens_read += sum;
    feed->counts.empty += is_empty ? feed->group : 0;
    feed->counts.dropped += is_empty ? sum : 0;
    *tokens = is_empty ? 0 : sum;
    return 0;
}

/* As measure_group, for an item of one document. */
static inline int measure(struct rp_feed *feed, uint32_t number, uint32_t i, uint64_t *tokens,
                          uint64_t *size, struct rp_error *error)
{
    uint64_t length = feed->sources[number].ahead_length[i], align = feed->stage->align;
    if (feed->group > 1 || length == RP_LENGTH_BAD)
        return measure_group(feed, number, i, tokens, size, error);
    feed->counts.documents++;
    feed->counts.tokens_read += length;
    feed->counts.empty += length == 0;
    *tokens = length;
    *size = align == 1 ? length : rp_div_up(length, align) * align;
    return 0;
}

/* Charge the taken tokens of an item, and make a piece of it. 0: all of it is left out. */
static inline int take(struct rp_feed *feed, struct rp_feed_source *own,
                       struct rp_item_piece *piece, struct rp_error *error)
{
    feed->is_stale |= rp_choosing_charge(&feed->choosing, piece->length);
    own->state.tokens += piece->length;
    own->state.taken += feed->group;
    if (own->limits.max_tokens > 0)
        rp_feed_update_exhausted(feed, own);
    return own->is_trimmed ? rp_feed_trim_masked(feed, piece, error) : 1;
}

/* Steps 4 to 6 of section 6.3: 1 with the piece of the item at place `i`, or 0. */
static inline int visit(struct rp_feed *feed, uint32_t number, uint32_t i,
                        struct rp_item_piece *piece, uint32_t *size, struct rp_error *error)
{
    struct rp_feed_source *own = &feed->sources[number];
    uint64_t tokens, places;
    if (!(own->wanted >> i & 1) || (own->has_out && rp_feed_is_out(feed, number, piece->item))) {
        feed->counts.passed_over += feed->group;
        return 0;
    }
    int failed = measure(feed, number, i, &tokens, &places, error);
    if (failed < 0 || tokens == 0)
        return failed;
    if (own->is_atomic || tokens > feed->stage->seq_len) {
        int64_t taken = shorten(feed, number, piece->item, tokens, &places, error);
        if (taken <= 0)
            return (int)taken;
        tokens = (uint64_t)taken;
    }
    piece->length = (uint32_t)tokens;
    int left = take(feed, own, piece, error);
    *size = own->is_trimmed && feed->group == 1 ? rp_feed_round(feed, piece->length)
                                                : (uint32_t)places;
    return left;
}

static int reach_limit(struct rp_feed *feed, uint32_t number, struct rp_error *error)
{
    const struct rp_feed_source *own = &feed->sources[number];
    if (own->limits.on_exhausted == RP_EXHAUSTED_ERROR) {
        bool of_epochs = own->limits.max_epochs > 0 && own->state.epoch >= own->limits.max_epochs;
        return rp_fail(error, -RP_E_EMPTY,
                       "raise the limit, or set on_exhausted: continue or stop for this source",
                       "source %s has reached max_%s: %" PRIu64, name_of(feed, number),
                       of_epochs ? "epochs" : "tokens",
                       of_epochs ? own->limits.max_epochs : own->limits.max_tokens);
    }
    feed->is_stopped = feed->is_dry = true;
    return 0;
}

static int fail_fruitless(const struct rp_feed *feed, uint32_t number, struct rp_error *error)
{
    const struct rp_feed_source *own = &feed->sources[number];
    return rp_fail(error, -RP_E_EMPTY,
                   "remove the source, or look at its lengths, select, too_long and long_doc",
                   "source %s: a whole epoch of its %" PRIu64
                   " documents gives no token: it selects none, or none that can be used",
                   name_of(feed, number), own->state.before);
}

int rp_feed_visit(struct rp_feed *feed, struct rp_item_piece *piece, uint32_t *size,
                  struct rp_error *error)
{
    feed->calls++;
    for (;;) {
        int failed = feed->is_stale ? mix(feed, error) : 0;
        if (failed < 0)
            return failed;
        if (feed->is_stopped || feed->choosing.count == 0) {
            feed->is_dry = true;
            return 0;
        }
        uint32_t number = rp_choosing_first(&feed->choosing);
        struct rp_feed_source *own = &feed->sources[number];
        if (own->is_exhausted)
            return reach_limit(feed, number, error);
        if (own->ahead_next == own->ahead_count) {
            failed = rp_feed_read_ahead(feed, own, error);
            if (failed < 0)
                return failed;
        }
        uint32_t i = own->ahead_next++, epoch = own->state.epoch;
        own->plain &= ~(UINT64_C(1) << i);
        *piece = (struct rp_item_piece){.item = own->ahead_item[i],
                                        .epoch = epoch,
                                        .source = (uint16_t)number,
                                        .pass = own->state.pass};
        if (own->state.position == 0 && own->state.pass == 0)
            own->begun_in = feed->calls;
        if (++own->state.position == own->items) {
            failed = end_pass(feed, number, error);
            if (failed < 0)
                return failed;
        }
        int given = visit(feed, number, i, piece, size, error);
        if (given != 0)
            return given;
        if (own->state.epoch > epoch && own->begun_in == feed->calls && !own->is_exhausted)
            return fail_fruitless(feed, number, error);
    }
}
