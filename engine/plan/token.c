/* SPDX-License-Identifier: Apache-2.0 */
/* token.c — write a state token, and load one that token_verify.c has checked.
 *
 * Records are copied as they are in memory: both are little-endian (base/bits.h), and no record has
 * padding (the assertions in token_records.h). */
#include "plan/token_records.h"

#include <inttypes.h>

#include "base/bits.h"

/* ---- writing --------------------------------------------------------------------------------- */

struct writer {
    uint8_t *at;
};

static void put(struct writer *writer, const void *record, size_t bytes)
{
    memcpy(writer->at, record, bytes);
    writer->at += bytes;
}

static void put_sources(struct writer *writer, const struct rp_plan *plan)
{
    for (uint32_t s = 0; s < plan->source_count; s++) {
        struct rp_state_source source = {plan->weights[s], plan->sources[s].documents};
        put(writer, &source, sizeof source);
    }
}

static void put_piece(struct writer *writer, const struct rp_piece *piece)
{
    struct rp_state_piece record = {piece->document, piece->offset, piece->length, piece->source,
                                    0};
    put(writer, &record, sizeof record);
}

static void put_open_row(struct writer *writer, const struct rp_lane *lane, uint16_t slot)
{
    const struct rp_open_row *row = &lane->open_rows[slot];
    struct rp_state_open_row record = {row->opened_at, row->count, 0};
    put(writer, &record, sizeof record);
    put(writer, rp_open_fragments(lane, slot), row->count * sizeof(struct rp_fragment));
}

static void put_lane(struct writer *writer, const struct rp_lane *lane)
{
    const struct rp_window *window = &lane->window;
    bool is_fifo = lane->config->packing == RP_PACKING_LOOKAHEAD;
    struct rp_state_lane record = {
        .counts = lane->counts,
        .fifo = is_fifo ? window->count : 0,
        .pending = lane->pending.length > 0,
        .open_rows = is_fifo ? 0 : window->count,
    };
    put(writer, &record, sizeof record);
    for (uint32_t s = 0; s < lane->piece_source.source_count; s++) {
        const struct rp_cursor *cursor = &lane->piece_source.cursors[s];
        struct rp_state_cursor place = {cursor->epoch, cursor->position,
                                        lane->piece_source.mixing.mixed[s]};
        put(writer, &place, sizeof place);
    }
    uint16_t slot = RP_WINDOW_NONE;
    for (uint32_t i = 0; i < record.fifo; i++) {
        slot = rp_window_newer(window, slot);
        put_piece(writer, &lane->pieces[slot]);
    }
    if (record.pending)
        put_piece(writer, &lane->pending);
    for (uint32_t i = 0; i < record.open_rows; i++) {
        slot = rp_window_newer(window, slot);
        put_open_row(writer, lane, slot);
    }
}

size_t rp_plan_save(const struct rp_plan *plan, void *token)
{
    size_t bytes;
    if (plan->v2)
        return rp_planner_token_write(plan->v2->now.rows, token, &bytes, NULL) == 0 ? bytes : 0;
    struct writer writer = {token};
    struct rp_state_header header = rp_state_header_of(plan);
    put(&writer, &header, sizeof header);
    put_sources(&writer, plan);
    for (uint32_t lane = 0; lane < plan->config.lanes; lane++)
        put_lane(&writer, &plan->lanes[lane]);
    if (header.version != RP_TOKEN_VERSION_PLAIN)
        put(&writer, &plan->config.tokenizer, sizeof plan->config.tokenizer);
    if (header.version == RP_TOKEN_VERSION_DIGEST)
        put(&writer, &plan->digest, sizeof plan->digest);

    size_t hashed = (size_t)(writer.at - (uint8_t *)token);
    struct rp_hash128 hash;
    rp_store_u32((uint8_t *)token + offsetof(struct rp_state_header, bytes),
                 (uint32_t)(hashed + sizeof hash));
    hash = rp_hash128(token, hashed);
    put(&writer, &hash, sizeof hash);
    return hashed + sizeof hash;
}

int rp_plan_try_save(const struct rp_plan *plan, void *token, size_t *bytes, struct rp_error *error)
{
    if (plan->v2)
        return rp_planner_token_write(plan->v2->now.rows, token, bytes, error);
    *bytes = rp_plan_save(plan, token); /* version 1 needs no memory */
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Verified bytes are complete, so reading them cannot fail. */
static void get(struct rp_state_reader *reader, void *record, size_t bytes)
{
    bool read = rp_state_read(reader, record, bytes);
    RP_ASSERT(read);
}

static struct rp_piece get_piece(struct rp_state_reader *reader)
{
    struct rp_state_piece record;
    get(reader, &record, sizeof record);
    return (struct rp_piece){record.document, record.offset, record.length, record.source};
}

static void get_open_row(struct rp_state_reader *reader, struct rp_lane *lane)
{
    struct rp_state_open_row record;
    get(reader, &record, sizeof record);
    /* The window needs the gap, which follows from the fragments: they are read twice. */
    struct rp_state_reader fragments = *reader;
    uint32_t gap = lane->config->seq_len;
    for (uint32_t i = 0; i < record.fragments; i++) {
        struct rp_fragment fragment;
        get(&fragments, &fragment, sizeof fragment);
        gap -= fragment.length;
    }
    uint16_t slot = rp_lane_add_open_row(lane, record.opened_at, gap);
    lane->open_rows[slot].count = record.fragments;
    get(reader, rp_open_fragments(lane, slot), record.fragments * sizeof(struct rp_fragment));
}

/* The changes of a plan that continues from a token. */
struct change {
    bool weights;
    uint64_t epochs_before; /* num_epochs of the token, if the plan's is another; else 0 */
    uint64_t next_row;
};

/* A finished source of the lane continues: it does not make up for tokens that the other sources
 * delivered since its end. The lane's rows after its end count as padding from now on. */
static void begin_again(struct rp_lane *lane, uint64_t number, uint64_t next_row)
{
    uint64_t rows = rp_rows_of_lane(number, lane->config->lanes, next_row);
    for (uint32_t s = 0; s < lane->piece_source.source_count; s++)
        lane->piece_source.mixing.mixed[s] = 0;
    lane->counts.padding = rows * lane->config->seq_len - lane->counts.emitted;
}

static void load_lane(struct rp_state_reader *reader, struct rp_lane *lane, uint64_t number,
                      const struct change *change)
{
    struct rp_state_lane record;
    bool goes_on = false;
    get(reader, &record, sizeof record);
    lane->counts = record.counts;
    for (uint32_t s = 0; s < lane->piece_source.source_count; s++) {
        struct rp_state_cursor place;
        get(reader, &place, sizeof place);
        lane->piece_source.cursors[s].epoch = place.epoch;
        lane->piece_source.cursors[s].position = place.position;
        lane->piece_source.mixing.mixed[s] = change->weights ? 0 : place.mixed;
        goes_on |= change->epochs_before > 0 && place.epoch == change->epochs_before;
    }
    if (goes_on)
        begin_again(lane, number, change->next_row);
    rp_piece_source_reset(&lane->piece_source);
    if (lane->window.capacity > 0)
        rp_window_clear(&lane->window);
    for (uint32_t i = 0; i < record.fifo; i++) {
        struct rp_piece piece = get_piece(reader);
        rp_lane_add_piece(lane, &piece);
    }
    lane->pending = record.pending ? get_piece(reader) : (struct rp_piece){0};
    for (uint32_t i = 0; i < record.open_rows; i++)
        get_open_row(reader, lane);
}

/* Tokens stay in the version of their stream (STREAM2.md section 12.6). */
static int check_version(const struct rp_plan *plan, const void *token, size_t bytes,
                         struct rp_error *error)
{
    uint32_t version = bytes < RP_STATE_HEAD_BYTES ? 0 : rp_state_head(token).stream_version;
    struct rp_state_info info;
    if (version == 0 || version == rp_plan_version(plan))
        return 0;
    int failed = rp_state_info(token, bytes, &info, error);
    if (failed < 0)
        return failed;
    return rp_fail(error, -RP_E_MISMATCH,
                   version == 1
                       ? "the run is unchanged; a run of version 1 stays version 1 to its end: "
                         "start the engine with this state, or with `stream_version: 1`, and "
                         "without keys of version 2. To use those, begin a new stream: `unseen_of` "
                         "takes the documents that this state has not used"
                       : "the run is unchanged; leave `stream_version` out of the config of the "
                         "run that saved it, or take a state token of version 1",
                   "stream_version: %" PRIu32 " in the state token, %" PRIu32 " in the config",
                   version, rp_plan_version(plan));
}

static int load(struct rp_plan *plan, const void *token, size_t bytes,
                struct rp_state_accepts accepts, struct rp_error *error)
{
    struct rp_state_reader reader = {0};
    struct rp_state_header header;
    bool weights_differ = false;
    int failed = check_version(plan, token, bytes, error);
    if (failed == 0 && plan->v2)
        return rp_v2_load(plan->v2, token, bytes, error);
    if (failed == 0)
        failed = rp_state_open(&reader, &header, token, bytes, error);
    if (failed == 0)
        failed = rp_state_match(&reader, &header, plan, accepts, &weights_differ, error);
    if (failed == 0)
        failed = rp_state_verify(reader, &header, plan, error);
    if (failed < 0)
        return failed;

    bool epochs_differ = header.num_epochs != plan->config.num_epochs;
    const struct change change = {weights_differ, epochs_differ ? header.num_epochs : 0,
                                  header.next_row};
    for (uint32_t lane = 0; lane < plan->config.lanes; lane++)
        load_lane(&reader, &plan->lanes[lane], lane, &change);
    plan->next_row = header.next_row;
    plan->digest = reader.digest;
    plan->failed = false;
    return 0;
}

int rp_plan_load(struct rp_plan *plan, const void *token, size_t bytes, bool accept_weights,
                 struct rp_error *error)
{
    return load(plan, token, bytes, (struct rp_state_accepts){accept_weights, false}, error);
}

int rp_plan_resume(struct rp_plan *plan, const void *token, size_t bytes, bool accept_weights,
                   struct rp_error *error)
{
    return load(plan, token, bytes, (struct rp_state_accepts){accept_weights, true}, error);
}

int rp_plan_start(struct rp_plan *plan, const void *token, size_t bytes,
                  const struct rp_plan_start *start, struct rp_error *error)
{
    if (!plan->v2)
        return rp_plan_resume(plan, token, bytes, start->accept_weights, error);
    int failed = check_version(plan, token, bytes, error);
    return failed < 0 ? failed : rp_v2_start(plan->v2, token, bytes, start, error);
}

int rp_plan_rewind(struct rp_plan *plan, struct rp_error *error)
{
    RP_ASSERT(plan->v2);
    return rp_v2_rewind(plan->v2, error);
}

int rp_plan_follow(struct rp_plan *plan, const struct rp_plan *started, struct rp_error *error)
{
    RP_ASSERT(rp_plan_version(plan) == rp_plan_version(started));
    return plan->v2 ? rp_v2_follow(plan->v2, started->v2, error) : 0;
}

int rp_plan_append_record(struct rp_plan *plan, const struct rp_plan_record *record,
                          struct rp_error *error)
{
    RP_ASSERT(plan->v2);
    return rp_v2_append_record(plan->v2, record, error);
}

/* ---- listing --------------------------------------------------------------------------------- */

/* Add up the counts of all lanes. False if the records do not fill the token exactly. */
static bool sum_counts(struct rp_state_reader *reader, const struct rp_state_header *header,
                       struct rp_plan_counts *counts)
{
    if (!rp_state_skip(reader, header->source_count, sizeof(struct rp_state_source)))
        return false;
    for (uint32_t i = 0; i < header->lanes; i++) {
        struct rp_state_lane lane;
        if (!rp_state_read(reader, &lane, sizeof lane) ||
            !rp_state_skip(reader, header->source_count, sizeof(struct rp_state_cursor)) ||
            !rp_state_skip_held(reader, &lane))
            return false;
        rp_plan_counts_add(counts, &lane.counts);
    }
    counts->buffered = counts->tokens_read - counts->emitted - counts->truncated - counts->dropped;
    return reader->left == 0;
}

int rp_state_info(const void *token, size_t bytes, struct rp_state_info *info,
                  struct rp_error *error)
{
    struct rp_state_reader reader = {0};
    struct rp_state_header header;
    if (rp_v2_is_token(token, bytes))
        return rp_v2_state_info(token, bytes, info, error);
    int failed = rp_state_open(&reader, &header, token, bytes, error);
    if (failed < 0)
        return failed;
    *info = (struct rp_state_info){
        .config = {.seed = header.seed,
                   .num_epochs = header.num_epochs,
                   .seq_len = header.seq_len,
                   .shuffle = (enum rp_shuffle)header.shuffle,
                   .block_documents = header.block_documents,
                   .window_blocks = header.window_blocks,
                   .packing = (enum rp_packing)header.packing,
                   .window = header.window,
                   .row_gap = (enum rp_row_gap)header.row_gap,
                   .long_doc = (enum rp_long_doc)header.long_doc,
                   .max_docs_per_row = header.max_docs_per_row,
                   .lanes = header.lanes,
                   .corpus_sampled = header.corpus_sampled,
                   .corpus_full = header.corpus_full,
                   .tokenizer = reader.tokenizer},
        .stream_version = 1,
        .next_row = header.next_row,
        .window_first = header.next_row,
        .window_end = header.next_row,
        .digest = reader.digest,
        .source_count = header.source_count,
        .bytes = header.bytes,
    };
    if (!sum_counts(&reader, &header, &info->counts))
        return RP_TOKEN_DAMAGED(error, ": its records do not fill its %" PRIu32 " bytes",
                                header.bytes);
    return 0;
}
