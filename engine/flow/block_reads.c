/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/block_reads.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "corpus/sides.h"

/* Rows that find_local_lanes counts of a longer period. */
#define PERIOD_ROWS_MAX (1u << 20)
/* Pairs of a lane and a source that one call of rp_block_reads_peek checks. */
#define PAIRS_A_CALL 16u
/* With four windows in memory no thread waits: packers finish one, the plan draws from the second,
 * the third is read, and the fourth is being read. */
#define WINDOWS_AT_EASE 4u

/* ---- opening: are blocks read? --------------------------------------------------------------- */

/* The lane and the rank of a row repeat with one period: count, in one period, how many rows of
 * each lane belong to ranks of this node. */
static void find_local_lanes(struct rp_block_reads *b, const struct rp_flow_options *o,
                             uint64_t base_row)
{
    uint32_t lanes = b->blocks.lanes;
    RP_ASSERT(lanes > 0 && o->batch_size > 0 && o->dp_world_size > 0);
    uint64_t batch_rows = (uint64_t)o->batch_size * o->dp_world_size;
    uint64_t period = batch_rows / rp_gcd_u64(batch_rows, lanes) * lanes;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        uint64_t ours = 0, all = 0;
        /* the lane's rows are every lanes-th one, first the one whose number is lane mod lanes */
        uint64_t first = (lane + lanes - base_row % lanes) % lanes;
        for (uint64_t i = first; i < rp_min_u64(period, PERIOD_ROWS_MAX); i += lanes, all++)
            ours += i / o->batch_size % o->dp_world_size - o->rank_first < o->rank_count;
        b->is_local[lane] = 2 * ours >= all;
        b->leaves_lanes_out |= !b->is_local[lane];
    }
}

bool rp_block_reads_take_column(const struct rp_corpus *corpus, uint32_t c)
{
    return rp_corpus_sides(corpus)->columns[c].type.bytes <= RP_BLOCK_ENTRY_BYTES_MAX ||
           rp_corpus_first_object(corpus);
}

/* Bytes a token of the side columns that are read by blocks. */
static uint32_t narrow_bytes(const struct rp_corpus *corpus)
{
    const struct rp_sides *sides = rp_corpus_sides(corpus);
    uint32_t bytes = 0;
    for (uint32_t c = 0; c < sides->count; c++)
        if (rp_block_reads_take_column(corpus, c))
            bytes += sides->columns[c].type.bytes;
    return bytes;
}

static uint64_t mean_block_bytes(const struct rp_corpus *corpus, uint32_t source,
                                 uint64_t documents)
{
    const struct rp_source *s = rp_corpus_source(corpus, source);
    struct rp_extent extent;
    struct rp_error ignored;
    if (rp_source_extent(s, 0, &extent, &ignored) < 0)
        extent.width = sizeof(uint64_t); /* a damaged document may never be met */
    double mean = (double)rp_source_tokens(s) / (double)rp_source_documents(s);
    return (uint64_t)(mean * (double)documents * (extent.width + narrow_bytes(corpus))) +
           RP_BLOCK_BYTES * (1 + rp_corpus_sides(corpus)->count);
}

/* Bytes of one window of every local lane and source. */
static uint64_t window_bytes(const struct rp_block_reads *b, const struct rp_flow_options *o)
{
    uint64_t lanes = 0, bytes = 0;
    for (uint32_t lane = 0; lane < b->blocks.lanes; lane++)
        lanes += b->is_local[lane];
    if (b->blocks.are_shared)
        lanes = rp_min_u64(lanes, 1);
    for (uint32_t s = 0; s < b->blocks.sources; s++)
        bytes += mean_block_bytes(o->corpus, s, b->blocks.documents);
    return bytes * b->blocks.window * lanes;
}

/* Two windows, and space for tickets' own reads. */
static uint64_t least_bytes(uint64_t window)
{
    return window * 2 + window / 4;
}

static bool are_too_many(const struct rp_block_reads *b, const struct rp_corpus *corpus)
{
    uint64_t files = 1 + rp_corpus_sides(corpus)->count;
    return 2 * files * b->blocks.window * b->pair_count > RP_BLOCK_READS_MAX;
}

void rp_block_reads_locate(const struct rp_block_reads *b, const struct rp_plan *plan,
                           struct rp_block_at *at, bool is_end)
{
    for (uint32_t pair = 0; pair < b->pair_count; pair++) {
        uint32_t lane = pair / b->blocks.sources, source = pair % b->blocks.sources;
        if (is_end)
            at[pair].position = rp_plan_block_position(plan, lane, source);
        else
            at[pair].window = rp_plan_block_window(plan, lane, source);
    }
}

void rp_block_reads_move(struct rp_block_reads *b, const struct rp_block_at *at)
{
    memcpy(b->at, at, b->pair_count * sizeof *at);
}

static void place_ahead(struct rp_block_reads *b, const struct rp_plan *plan)
{
    rp_block_reads_locate(b, plan, b->at, false);
    rp_block_reads_locate(b, plan, b->at, true);
    for (uint32_t pair = 0; pair < b->pair_count; pair++)
        b->ahead[pair] = b->at[pair].window;
}

static bool are_of_use(struct rp_block_reads *b, const struct rp_flow_options *options,
                       uint64_t data_bytes)
{
    uint64_t wanted = least_bytes(window_bytes(b, options));
    if (wanted == 0 || are_too_many(b, options->corpus))
        return false;
    if (wanted > data_bytes)
        rp_log(RP_LOG_INFO,
               "documents are read one by one; with prefetch_bytes: %" PRIu64 "k, found %" PRIu64
               "k, whole blocks would be",
               rp_div_up(wanted, 1024), data_bytes / 1024);
    return wanted <= data_bytes;
}

int rp_block_reads_open(struct rp_block_reads *b, const struct rp_plan *plan,
                        const struct rp_flow_options *options, uint64_t base_row,
                        uint64_t data_bytes, struct rp_error *error)
{
    *b = (struct rp_block_reads){.blocks = rp_plan_blocks(plan)};
    if (b->blocks.documents == 0)
        return 0;
    b->pair_count = b->blocks.lanes * b->blocks.sources;
    b->entries = rp_calloc(RP_BLOCK_READS_MAX, sizeof *b->entries);
    b->buckets = rp_calloc(RP_BLOCK_READS_MAX, sizeof *b->buckets);
    b->ahead = rp_calloc(b->pair_count, sizeof *b->ahead);
    b->at = rp_calloc(b->pair_count, sizeof *b->at);
    b->is_local = rp_calloc(b->blocks.lanes, sizeof *b->is_local);
    if (!b->entries || !b->buckets || !b->ahead || !b->at || !b->is_local) {
        rp_block_reads_close(b);
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the pipeline");
    }
    find_local_lanes(b, options, base_row);
    place_ahead(b, plan);
    if (!are_of_use(b, options, data_bytes))
        rp_block_reads_close(b);
    return 0;
}

void rp_block_reads_close(struct rp_block_reads *b)
{
    free(b->entries);
    free(b->buckets);
    free(b->ahead);
    free(b->at);
    free(b->is_local);
    *b = (struct rp_block_reads){0};
}

uint64_t rp_block_reads_data_bytes(const struct rp_plan *plan,
                                   const struct rp_flow_options *options, uint64_t base_row,
                                   uint64_t bytes_max)
{
    struct rp_block_reads b = {.blocks = rp_plan_blocks(plan)};
    if (b.blocks.documents == 0)
        return 0;
    b.pair_count = b.blocks.lanes * b.blocks.sources;
    b.is_local = rp_calloc(b.blocks.lanes, sizeof *b.is_local);
    if (!b.is_local || are_too_many(&b, options->corpus)) {
        rp_block_reads_close(&b);
        return 0;
    }
    find_local_lanes(&b, options, base_row);
    uint64_t window = window_bytes(&b, options);
    rp_block_reads_close(&b);
    return least_bytes(window) <= bytes_max ? rp_min_u64(WINDOWS_AT_EASE * window, bytes_max) : 0;
}

/* ---- the blocks that are read ---------------------------------------------------------------- */

static uint32_t bucket_of(uint32_t source, uint64_t number)
{
    return (uint32_t)((number * 0x9e3779b97f4a7c15u + source * 0xbf58476d1ce4e5b9u) >> 52);
}
RP_STATIC_ASSERT(RP_BLOCK_READS_MAX == 1u << 12, "bucket_of keeps 12 bits");

#define ANY_SHARD UINT32_MAX

static const struct rp_block_read *find(const struct rp_block_reads *b,
                                        const struct rp_data_ring *data_ring, uint32_t source,
                                        uint64_t number, uint32_t shard)
{
    uint32_t at = b->buckets[bucket_of(source, number)];
    for (; at; at = b->entries[at - 1].next_in_bucket) {
        const struct rp_block_read *block_read = &b->entries[at - 1];
        if (block_read->number == number && block_read->source == source &&
            (block_read->shard == shard || shard == ANY_SHARD) &&
            rp_data_ring_has(data_ring, block_read->region))
            return block_read;
    }
    return NULL;
}

const struct rp_block_read *rp_block_reads_find(const struct rp_block_reads *b,
                                                const struct rp_data_ring *data_ring,
                                                uint32_t source, uint64_t document, uint32_t shard)
{
    return b->count ? find(b, data_ring, source, document / b->blocks.documents, shard) : NULL;
}

static void next_pair(struct rp_block_reads *b)
{
    b->pair = (b->pair + 1) % b->pair_count;
}

bool rp_block_reads_peek(struct rp_block_reads *b, const struct rp_data_ring *data_ring,
                         const struct rp_plan *plan, struct rp_plan_block *block)
{
    uint32_t pairs = (uint32_t)rp_min_u64(b->pair_count, PAIRS_A_CALL);
    for (uint32_t i = 0; i < pairs; i++, next_pair(b)) {
        uint32_t lane = b->pair / b->blocks.sources;
        uint32_t source = b->pair % b->blocks.sources;
        uint64_t *ahead = &b->ahead[b->pair];
        if (!b->is_local[lane])
            continue;
        uint64_t until = b->at[b->pair].position + b->blocks.window;
        for (; *ahead < until && rp_plan_block_at(plan, lane, source, *ahead, block); ++*ahead) {
            const struct rp_block_read *found = find(b, data_ring, source, block->number,
                                                     ANY_SHARD);
            if (!found || found->epoch != block->epoch) /* else another lane has had it read */
                return true;
        }
        if (*ahead < until) /* the epoch has no block here: the next one begins at its window */
            *ahead = rp_max_u64(*ahead, b->at[b->pair].window);
    }
    return false;
}

void rp_block_reads_take(struct rp_block_reads *b)
{
    b->ahead[b->pair]++;
}

void rp_block_reads_defer(struct rp_block_reads *b)
{
    next_pair(b);
}

bool rp_block_reads_is_in_window(const struct rp_block_reads *b)
{
    return b->ahead[b->pair] < b->at[b->pair].window + b->blocks.window;
}

static void unlink_block_read(struct rp_block_reads *b, uint32_t index)
{
    const struct rp_block_read *block_read = &b->entries[index];
    uint32_t *link = &b->buckets[bucket_of(block_read->source, block_read->number)];
    while (*link != index + 1) {
        RP_ASSERT(*link != 0); /* every block read that is kept is in its bucket */
        link = &b->entries[*link - 1].next_in_bucket;
    }
    *link = block_read->next_in_bucket;
}

void rp_block_reads_add(struct rp_block_reads *b, const struct rp_block_read *block_read)
{
    RP_ASSERT(block_read->run_count > 0 && block_read->run_count <= RP_BLOCK_RUNS_MAX);
    uint32_t index = (uint32_t)(b->count % RP_BLOCK_READS_MAX);
    if (b->count >= RP_BLOCK_READS_MAX)
        unlink_block_read(b, index);
    uint32_t *bucket = &b->buckets[bucket_of(block_read->source, block_read->number)];
    b->entries[index] = *block_read;
    b->entries[index].next_in_bucket = *bucket;
    *bucket = index + 1;
    b->count++;
}
