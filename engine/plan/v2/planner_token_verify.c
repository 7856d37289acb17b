/* SPDX-License-Identifier: Apache-2.0 */
/* planner_token_verify.c — check that a plan of this calendar could have written a token.
 *
 * The token was decoded, and its parameters and fingerprints agree with the calendar: a
 * difference there is another config or corpus. Here a difference is damage or forgery. The state
 * is that before window_first, so its pieces obey the parameters of the row before. */
#include <errno.h>
#include <inttypes.h>

#include "plan/v2/stores.h"
#include "plan/v2/planner_token_format.h"

__extension__ typedef unsigned __int128 wide; /* sums of forged 64-bit numbers do not overflow */

struct check {
    const struct rp_token2 *token;
    const struct rp_calendar *calendar;
    const struct rp_stream_fixed *fixed;
    const struct rp_stage *was; /* has the row before window_first */
    struct rp_error *error;
};

static const struct rp_stage *stage_before(const struct rp_calendar *calendar, uint64_t row)
{
    return rp_calendar_at(calendar, row > 0 ? row - 1 : 0);
}

struct rp_token2_room rp_token2_room_at(const struct rp_calendar *calendar, uint64_t row)
{
    struct rp_token2_room room = {0};
    uint32_t group = rp_calendar_spec(calendar)->fixed.group;
    for (uint64_t from = 0;; from = rp_calendar_next(calendar, from)) {
        if (from == RP_NO_ROW || from > row)
            return room;
        const struct rp_stage *stage = rp_calendar_at(calendar, from);
        uint64_t window = stage->window, spread = stage->spread, open = 0, rows = 0;
        if (stage->packing == RP_PACKING_CONCAT)
            window = 1;
        if (stage->packing == RP_PACKING_BEST_FIT) {
            rows = window;
            open = rp_min_u64((RP_AGE_MAX_W + 1) * window,
                              window * (stage->max_docs_per_row / group - 1));
        }
        /* A boundary of other packing makes pieces of open rows queue, and may make all of them
         * entries. */
        uint64_t heads = rows * sizeof(struct rp_token2_open_row);
        uint64_t queued = stage->rebuilds ? room.waiting : 0;
        uint64_t carried = queued * sizeof(struct rp_pool_entry) + heads;
        uint64_t own = (window + open) * sizeof(struct rp_item_piece) +
                       spread * sizeof(struct rp_pool_entry) + heads;
        room.queued = rp_max_u64(room.waiting, window + spread);
        room.waiting = rp_max_u64(room.waiting, window + spread + open);
        room.bytes = rp_max_u64(room.bytes, rp_max_u64(carried, own));
    }
}

/* ---- sources --------------------------------------------------------------------------------- */

/* At row 0 and where a source joins, its state is the first one. */
static bool is_first(const struct rp_source_state *state)
{
    return state->epoch == 0 && state->pass == 0 && state->position == 0 && state->credit == 0 &&
           state->tokens == 0 && state->taken == 0 && state->withheld == 0;
}

static int check_joined(const struct check *check)
{
    const struct rp_token2_header *header = &check->token->header;
    uint32_t joined = stage_before(check->calendar, header->next_row)->joined;
    uint32_t before = header->window_first > 0 ? check->was->joined : 0;
    if (header->source_count != joined)
        return RP_TOKEN_DAMAGED(check->error,
                                ": it has %" PRIu32 " sources; %" PRIu32 " joined by row %" PRIu64,
                                header->source_count, joined, header->next_row);
    for (uint32_t j = before; j < joined; j++)
        if (!is_first(&check->token->sources[j].state))
            return RP_TOKEN_DAMAGED(
                check->error, ", source %s: it joins at row %" PRIu64 ", and was read before it",
                check->token->sources[j].name, header->window_first);
    return 0;
}

/* Items that were visited, by the sources' positions: epochs before the last had at most the
 * documents of the last, and at least one item. */
static int check_visits(const struct check *check)
{
    const struct rp_token2_header *header = &check->token->header;
    wide least = 0, most = 0, visited = (wide)header->counts.documents + header->counts.passed_over;
    for (uint32_t j = 0; j < header->source_count; j++) {
        const struct rp_source_state *state = &check->token->sources[j].state;
        const struct rp_stream_source *source = rp_calendar_source(check->calendar, j);
        bool is_known = source != NULL;
        uint32_t passes_min = is_known ? source->passes : 1;
        uint32_t passes_max = is_known ? source->passes : RP_COUNT_MAX;
        if (state->pass >= passes_max)
            return RP_TOKEN_DAMAGED(check->error, ", source %s: it is in pass %u of %" PRIu32,
                                    check->token->sources[j].name, state->pass, passes_max);
        wide now = (wide)state->pass * state->documents + (wide)state->position * header->group;
        least += now;
        most += now;
        if (state->epoch > 0) {
            wide earlier = (wide)(state->epoch - 1);
            least += passes_min * (state->before + earlier * header->group);
            most += passes_max * (state->before + earlier * state->before);
        }
    }
    if (visited < least || visited > most)
        return RP_TOKEN_DAMAGED(check->error,
                                ": %" PRIu64 " documents were read and %" PRIu64
                                " passed over: the sources' positions say otherwise",
                                header->counts.documents, header->counts.passed_over);
    return 0;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Tokens of the item and places that it needs whole, or an error. */
static int measure_item(const struct check *check, const struct rp_item_piece *piece,
                        const struct rp_stream_source *source, uint64_t *tokens, uint64_t *size)
{
    uint64_t documents[RP_GROUP_MAX] = {0}, lengths[RP_GROUP_MAX];
    uint8_t counts[RP_GROUP_MAX];
    const struct rp_source_view *view = &source->view;
    uint32_t group = check->fixed->group, align = check->was->align;
    uint64_t more = check->fixed->bos_id != RP_NO_TOKEN_ID ? 1 : 0;
    more += check->fixed->eos_id != RP_NO_TOKEN_ID;
    *tokens = *size = 0;
    for (uint32_t i = 0; i < group; i++) {
        documents[i] = piece->item * group + i;
        counts[i] = 1;
    }
    view->lengths(view->context, documents, group, lengths);
    if (view->counts) {
        int code = view->counts(view->context, documents, group, counts, check->error);
        if (code < 0)
            return code;
    }
    for (uint32_t i = 0; i < group; i++) {
        if (lengths[i] == RP_LENGTH_BAD)
            return rp_fail(check->error, -RP_E_CORRUPT, "repair or rebuild this source's index",
                           "source %s: the index entry of document %" PRIu64 " is damaged",
                           source->name, documents[i]);
        if (lengths[i] == 0 || lengths[i] > UINT32_MAX || counts[i] <= piece->pass)
            return RP_TOKEN_DAMAGED(check->error,
                                    ": a piece of document %" PRIu64
                                    " of source %s waits, which pass %u does not take",
                                    documents[i], source->name, piece->pass);
        *tokens += lengths[i] + more;
        *size += rp_div_up(lengths[i] + more, align) * align;
    }
    return 0;
}

/* A piece ends where its item does, or where the item was truncated. *size: its places. */
static int check_piece(const struct check *check, const struct rp_item_piece *piece,
                       uint64_t length_min, uint64_t length_max, uint64_t *size)
{
    const char *name = check->token->sources[piece->source].name;
    const struct rp_stream_source *source = rp_calendar_source(check->calendar, piece->source);
    uint32_t group = check->fixed->group, seq_len = check->was->seq_len;
    uint64_t end = (uint64_t)piece->offset + piece->length, tokens, whole;
    if (!source)
        return RP_TOKEN_DAMAGED(check->error, ": a piece of source %s waits, which left the config",
                                name);
    int code = measure_item(check, piece, source, &tokens, &whole);
    if (code < 0)
        return code;
    bool is_atomic = source->too_long != RP_TOO_LONG_CUT || group > 1;
    bool is_truncated = is_atomic ? source->too_long == RP_TOO_LONG_TRUNCATE
                                  : check->fixed->long_doc == RP_LONG_DOC_TRUNCATE;
    *size = group > 1 ? whole : rp_div_up(piece->length, check->was->align) * check->was->align;
    if (end > tokens || (end < tokens && !is_truncated) || (is_atomic && piece->offset > 0) ||
        piece->pass >= source->passes)
        return RP_TOKEN_DAMAGED(check->error,
                                ": %" PRIu32 " tokens from %" PRIu32 " on of item %" PRIu64
                                " of source %s wait; it has %" PRIu64,
                                piece->length, piece->offset, piece->item, name, tokens);
    if (piece->length < length_min || piece->length > length_max ||
        (is_atomic && (*size > seq_len || piece->length > seq_len)))
        return RP_TOKEN_DAMAGED(check->error,
                                ": %" PRIu32 " tokens of item %" PRIu64
                                " of source %s wait in a place for %" PRIu64 " to %" PRIu64,
                                piece->length, piece->item, name, length_min, length_max);
    return 0;
}

static int check_queues(const struct check *check)
{
    const struct rp_snapshot *snapshot = &check->token->snapshot;
    uint64_t seq_len = check->was->seq_len, size;
    bool is_concat = check->was->packing == RP_PACKING_CONCAT;
    struct rp_token2_room room = rp_token2_room_at(check->calendar,
                                                   snapshot->row > 0 ? snapshot->row - 1 : 0);
    if ((uint64_t)snapshot->fifo_count + snapshot->pool_count > room.queued ||
        (is_concat && snapshot->pool_count > 0))
        return RP_TOKEN_DAMAGED(check->error,
                                ": %" PRIu32 " pieces in the FIFO and %" PRIu32
                                " in the pool; at most %" PRIu64 " are possible",
                                snapshot->fifo_count, snapshot->pool_count, room.queued);
    for (uint32_t i = 0; i < snapshot->fifo_count; i++) {
        int code = check_piece(check, &snapshot->fifo[i], 1, is_concat ? UINT32_MAX : seq_len,
                               &size);
        if (code < 0)
            return code;
    }
    for (uint32_t i = 0; i < snapshot->pool_count; i++) {
        const struct rp_pool_entry *entry = &snapshot->pool[i];
        int code = check_piece(check, &entry->piece, seq_len + 1, UINT32_MAX, &size);
        if (code < 0)
            return code;
        uint64_t end = (uint64_t)entry->piece.offset + entry->piece.length;
        if (entry->rows < rp_div_up(entry->piece.length, seq_len) ||
            entry->rows > rp_div_up(end, seq_len))
            return RP_TOKEN_DAMAGED(check->error,
                                    ": pool entry %" PRIu32 " has %" PRIu32 " rows; it has %" PRIu32
                                    " tokens from %" PRIu32 " on",
                                    i, entry->rows, entry->piece.length, entry->piece.offset);
    }
    return 0;
}

static int check_open_row(const struct check *check, uint32_t index,
                          const struct rp_item_piece *pieces)
{
    const struct rp_open_row_state *row = &check->token->snapshot.open[index];
    uint64_t places = 0, size;
    if (row->pieces >= check->was->max_docs_per_row / check->fixed->group)
        return RP_TOKEN_DAMAGED(check->error,
                                ": open row %" PRIu32 " has %" PRIu32 " pieces; a row of %" PRIu32
                                " documents would be full",
                                index, row->pieces, check->was->max_docs_per_row);
    for (uint32_t i = 0; i < row->pieces; i++) {
        int code = check_piece(check, &pieces[i], 1, check->was->seq_len, &size);
        if (code < 0)
            return code;
        places += size;
    }
    if (places >= check->was->seq_len)
        return RP_TOKEN_DAMAGED(check->error,
                                ": open row %" PRIu32 " has %" PRIu64
                                " places; expected less than %" PRIu32,
                                index, places, check->was->seq_len);
    return 0;
}

static int check_open_rows(const struct check *check)
{
    const struct rp_snapshot *snapshot = &check->token->snapshot;
    const struct rp_item_piece *pieces = snapshot->open_pieces;
    bool is_best_fit = check->was->packing == RP_PACKING_BEST_FIT;
    uint64_t placed = snapshot->counts.placed;
    uint64_t age_max = (uint64_t)RP_AGE_MAX_W * check->was->window;
    if (snapshot->open_count > (is_best_fit ? check->was->window : 0) ||
        (placed > 0 && !is_best_fit) ||
        (snapshot->open_count > 0 && placed - snapshot->open[0].opened_at > age_max))
        return RP_TOKEN_DAMAGED(check->error,
                                ": %" PRIu32 " open rows after %" PRIu64
                                " placed pieces, with %s and a window of %" PRIu32,
                                snapshot->open_count, placed, rp_packing_name(check->was->packing),
                                check->was->window);
    for (uint32_t i = 0; i < snapshot->open_count; i++) {
        int code = check_open_row(check, i, pieces);
        if (code < 0)
            return code;
        pieces += snapshot->open[i].pieces;
    }
    return 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Every planned row has all of its places in `emitted` and `padding`. */
static int check_places(const struct check *check)
{
    const struct rp_token2_header *header = &check->token->header;
    wide places = 0, counted = (wide)header->counts.emitted + header->counts.padding;
    uint64_t first = header->window_first, next;
    for (uint64_t from = 0; from < first; from = next) {
        next = rp_min_u64(rp_calendar_next(check->calendar, from), first);
        places += (wide)(next - from) * rp_calendar_at(check->calendar, from)->seq_len;
    }
    if (places != counted || header->counts.emitted < first)
        return RP_TOKEN_DAMAGED(check->error,
                                ": %" PRIu64 " tokens emitted and %" PRIu64
                                " of padding do not make the %" PRIu64 " rows before it",
                                header->counts.emitted, header->counts.padding, first);
    return 0;
}

/* Only rows that were skipped withhold tokens that were emitted. */
static int check_skipped(const struct check *check)
{
    const struct rp_token2_header *header = &check->token->header;
    wide tokens = 0, withheld = 0;
    for (uint32_t j = 0; j < header->source_count; j++) {
        tokens += check->token->sources[j].state.tokens;
        withheld += check->token->sources[j].state.withheld;
    }
    wide lost_later = tokens + header->counts.truncated + header->counts.dropped -
                      header->counts.tokens_read;
    bool skips = !rp_hash128_equal(rp_calendar_skip_hash(check->calendar, header->window_first),
                                   rp_calendar_skip_hash(check->calendar, 0));
    if (!skips && withheld != lost_later + header->counts.left_out)
        return RP_TOKEN_DAMAGED(check->error,
                                ": its sources withheld tokens, and no row before it was skipped");
    return 0;
}

/* At row 0, nothing was read. */
static int check_start(const struct check *check)
{
    static const struct rp_stream_counts none;
    const struct rp_token2_header *header = &check->token->header;
    if (header->window_first > 0)
        return 0;
    if (memcmp(&header->counts, &none, sizeof none) != 0 || header->stopped ||
        !rp_hash128_equal(header->digest, rp_hash128("", 0)))
        return RP_TOKEN_DAMAGED(check->error, ": at row 0, and something was read before it");
    return 0;
}

int rp_token2_verify(const struct rp_token2 *token, const struct rp_calendar *calendar,
                     struct rp_error *error)
{
    const struct check check = {
        .token = token,
        .calendar = calendar,
        .fixed = &rp_calendar_spec(calendar)->fixed,
        .was = stage_before(calendar, token->header.window_first),
        .error = error,
    };
    static int (*const steps[])(const struct check *) = {
        check_joined,  check_start,  check_visits,   check_places,
        check_skipped, check_queues, check_open_rows};
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(steps) && code == 0; i++)
        code = steps[i](&check);
    return code;
}
