/* SPDX-License-Identifier: Apache-2.0 */
/* bulk — see bulk.h. */
#include "flow/bulk.h"

#include <errno.h>
#include <inttypes.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"

#define PERIOD_ROWS_MAX (1u << 20)
#define PAIRS_A_LOOK 16u
/* A window that packers finish, one that the plan draws from, one that was read, one being read. */
#define WINDOWS_AT_EASE 4u

/* ---- whether --------------------------------------------------------------------------------- */

/* Rows go round lanes and ranks with one period: count there how many of a lane's are ours. */
static void find_local_lanes(struct rp_bulks *bulks, const struct rp_flow_options *o,
                             uint64_t base_row)
{
    uint32_t lanes = bulks->blocks.lanes;
    uint64_t batch_rows = (uint64_t)o->rows * o->world;
    uint64_t period = batch_rows / rp_gcd_u64(batch_rows, lanes) * lanes;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        uint64_t ours = 0, all = 0;
        /* the lane's rows are every lanes-th one, first the one whose number is lane mod lanes */
        uint64_t first = (lane + lanes - base_row % lanes) % lanes;
        for (uint64_t i = first; i < rp_min_u64(period, PERIOD_ROWS_MAX); i += lanes, all++)
            ours += i / o->rows % o->world - o->rank_first < o->rank_count;
        bulks->is_local[lane] = 2 * ours >= all;
    }
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
    return (uint64_t)(mean * (double)documents * extent.width) + RP_BLOCK_BYTES;
}

/* A window of every local lane and source. */
static uint64_t window_bytes(const struct rp_bulks *bulks, const struct rp_flow_options *o)
{
    uint64_t lanes = 0, bytes = 0;
    for (uint32_t lane = 0; lane < bulks->blocks.lanes; lane++)
        lanes += bulks->is_local[lane];
    if (bulks->blocks.are_shared)
        lanes = rp_min_u64(lanes, 1);
    for (uint32_t s = 0; s < bulks->blocks.sources; s++)
        bytes += mean_block_bytes(o->corpus, s, bulks->blocks.documents);
    return bytes * bulks->blocks.window * lanes;
}

/* Two windows, and room for tickets' own reads beside them. */
static uint64_t least_bytes(uint64_t window)
{
    return window * 2 + window / 4;
}

static bool are_too_many(const struct rp_bulks *bulks)
{
    return 2ull * bulks->blocks.window * bulks->pair_count > RP_BULKS_MAX;
}

static void place_ahead(struct rp_bulks *bulks, const struct rp_plan *plan)
{
    for (uint32_t pair = 0; pair < bulks->pair_count; pair++)
        bulks->ahead[pair] = rp_plan_block_window(plan, pair / bulks->blocks.sources,
                                                  pair % bulks->blocks.sources);
}

static bool are_of_use(struct rp_bulks *bulks, const struct rp_flow_options *options,
                       uint64_t data_bytes)
{
    uint64_t wanted = least_bytes(window_bytes(bulks, options));
    if (wanted == 0 || are_too_many(bulks))
        return false;
    if (wanted > data_bytes)
        rp_log(RP_LOG_INFO,
               "documents are read one by one; with prefetch_bytes: %" PRIu64 "k, found %" PRIu64
               "k, whole blocks would be",
               rp_div_up(wanted, 1024), data_bytes / 1024);
    return wanted <= data_bytes;
}

int rp_bulks_open(struct rp_bulks *bulks, const struct rp_plan *plan,
                  const struct rp_flow_options *options, uint64_t base_row, uint64_t data_bytes,
                  struct rp_error *error)
{
    *bulks = (struct rp_bulks){.blocks = rp_plan_blocks(plan)};
    if (bulks->blocks.documents == 0)
        return 0;
    bulks->pair_count = bulks->blocks.lanes * bulks->blocks.sources;
    bulks->bulks = rp_calloc(RP_BULKS_MAX, sizeof *bulks->bulks);
    bulks->buckets = rp_calloc(RP_BULKS_MAX, sizeof *bulks->buckets);
    bulks->ahead = rp_calloc(bulks->pair_count, sizeof *bulks->ahead);
    bulks->is_local = rp_calloc(bulks->blocks.lanes, sizeof *bulks->is_local);
    if (!bulks->bulks || !bulks->buckets || !bulks->ahead || !bulks->is_local) {
        rp_bulks_close(bulks);
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the pipeline");
    }
    find_local_lanes(bulks, options, base_row);
    place_ahead(bulks, plan);
    if (!are_of_use(bulks, options, data_bytes))
        rp_bulks_close(bulks);
    return 0;
}

void rp_bulks_close(struct rp_bulks *bulks)
{
    free(bulks->bulks);
    free(bulks->buckets);
    free(bulks->ahead);
    free(bulks->is_local);
    *bulks = (struct rp_bulks){0};
}

uint64_t rp_bulks_data_bytes(const struct rp_plan *plan, const struct rp_flow_options *options,
                             uint64_t base_row, uint64_t bytes_max)
{
    struct rp_bulks bulks = {.blocks = rp_plan_blocks(plan)};
    if (bulks.blocks.documents == 0)
        return 0;
    bulks.pair_count = bulks.blocks.lanes * bulks.blocks.sources;
    bulks.is_local = rp_calloc(bulks.blocks.lanes, sizeof *bulks.is_local);
    if (!bulks.is_local || are_too_many(&bulks)) {
        rp_bulks_close(&bulks);
        return 0;
    }
    find_local_lanes(&bulks, options, base_row);
    uint64_t window = window_bytes(&bulks, options);
    rp_bulks_close(&bulks);
    return least_bytes(window) <= bytes_max ? rp_min_u64(WINDOWS_AT_EASE * window, bytes_max) : 0;
}

/* ---- which ----------------------------------------------------------------------------------- */

static uint32_t bucket_of(uint32_t source, uint64_t number)
{
    return (uint32_t)((number * 0x9e3779b97f4a7c15u + source * 0xbf58476d1ce4e5b9u) >> 52);
}
RP_STATIC_ASSERT(RP_BULKS_MAX == 1u << 12, "bucket_of keeps 12 bits");

static const struct rp_bulk *find(const struct rp_bulks *bulks, const struct rp_space *space,
                                  uint32_t source, uint64_t number)
{
    uint32_t at = bulks->buckets[bucket_of(source, number)];
    for (; at; at = bulks->bulks[at - 1].next_in_bucket) {
        const struct rp_bulk *bulk = &bulks->bulks[at - 1];
        if (bulk->number == number && bulk->source == source && rp_space_has(space, bulk->region))
            return bulk;
    }
    return NULL;
}

const struct rp_bulk *rp_bulks_find(const struct rp_bulks *bulks, const struct rp_space *space,
                                    uint32_t source, uint64_t document)
{
    return bulks->count ? find(bulks, space, source, document / bulks->blocks.documents) : NULL;
}

bool rp_bulks_due(struct rp_bulks *bulks, const struct rp_space *space, const struct rp_plan *plan,
                  struct rp_plan_block *block)
{
    uint32_t looks = (uint32_t)rp_min_u64(bulks->pair_count, PAIRS_A_LOOK);
    for (uint32_t i = 0; i < looks; i++, bulks->pair = (bulks->pair + 1) % bulks->pair_count) {
        uint32_t lane = bulks->pair / bulks->blocks.sources;
        uint32_t source = bulks->pair % bulks->blocks.sources;
        uint64_t *ahead = &bulks->ahead[bulks->pair];
        if (!bulks->is_local[lane])
            continue;
        uint64_t until = rp_plan_block_position(plan, lane, source) + bulks->blocks.window;
        while (*ahead < until && rp_plan_block_at(plan, lane, source, *ahead, block)) {
            ++*ahead;
            const struct rp_bulk *found = find(bulks, space, source, block->number);
            if (!found || found->epoch != block->epoch) /* else it came for another lane */
                return true;
        }
    }
    return false;
}

bool rp_bulks_put_back(struct rp_bulks *bulks, const struct rp_plan *plan)
{
    uint32_t pair = bulks->pair;
    uint64_t position = --bulks->ahead[pair];
    uint64_t window = rp_plan_block_window(plan, pair / bulks->blocks.sources,
                                           pair % bulks->blocks.sources);
    bulks->pair = (pair + 1) % bulks->pair_count;
    return position < window + bulks->blocks.window;
}

static void unlink_bulk(struct rp_bulks *bulks, uint32_t index)
{
    const struct rp_bulk *bulk = &bulks->bulks[index];
    uint32_t *link = &bulks->buckets[bucket_of(bulk->source, bulk->number)];
    while (*link != index + 1)
        link = &bulks->bulks[*link - 1].next_in_bucket;
    *link = bulk->next_in_bucket;
}

void rp_bulks_add(struct rp_bulks *bulks, const struct rp_bulk *bulk)
{
    uint32_t index = (uint32_t)(bulks->count % RP_BULKS_MAX);
    if (bulks->count >= RP_BULKS_MAX)
        unlink_bulk(bulks, index);
    uint32_t *bucket = &bulks->buckets[bucket_of(bulk->source, bulk->number)];
    bulks->bulks[index] = *bulk;
    bulks->bulks[index].next_in_bucket = *bucket;
    *bucket = index + 1;
    bulks->count++;
}
