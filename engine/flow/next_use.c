/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/next_use.h"

#include <errno.h>

#include "base/bits.h"
#include "base/mapped.h"
#include "base/mem.h"
#include "corpus/sides.h"

/* Pairs of a lane and a source whose positions one note brings up to date. */
#define PAIRS_A_NOTE 16u
/* If a range spans more than BLOCKS_MAX blocks, only the first ones are considered. */
#define BLOCKS_MAX 32u

int rp_next_use_open(struct rp_next_use *next_use, const struct rp_corpus *corpus,
                     const struct rp_plan *plan, struct rp_error *error)
{
    uint32_t sources = rp_corpus_source_count(corpus);
    uint64_t *tokens = rp_calloc(sources, sizeof *tokens);
    *next_use = (struct rp_next_use){.corpus = corpus};
    if (!tokens)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a forecast");
    for (uint32_t s = 0; s < sources; s++)
        tokens[s] = rp_source_tokens(rp_corpus_source(corpus, s));
    int code = rp_forecast_open(&next_use->forecast, plan, tokens, error);
    free(tokens);
    return code;
}

void rp_next_use_close(struct rp_next_use *next_use)
{
    rp_forecast_close(next_use->forecast);
    next_use->forecast = NULL;
}

void rp_next_use_start(struct rp_next_use *next_use, const struct rp_plan *plan,
                       const struct rp_block_reads *block_reads)
{
    rp_forecast_set_all(next_use->forecast, plan);
    for (uint32_t lane = 0; block_reads->is_local && lane < block_reads->blocks.lanes; lane++)
        rp_forecast_set_local(next_use->forecast, lane, block_reads->is_local[lane]);
    rp_a32_store_release(&next_use->started, 1); /* PAIRS next-use-started */
}

void rp_next_use_note(struct rp_next_use *next_use, const struct rp_plan *plan,
                      const struct rp_block_reads *block_reads)
{
    const struct rp_plan_blocks blocks = rp_plan_blocks(plan);
    uint32_t pairs = blocks.lanes * blocks.sources;
    for (uint32_t i = 0; i < rp_min_u64(pairs, PAIRS_A_NOTE); i++) {
        uint32_t pair = next_use->next_pair++ % pairs;
        uint32_t lane = pair / blocks.sources, source = pair % blocks.sources;
        uint64_t read = block_reads->ahead ? block_reads->ahead[pair]
                                           : rp_plan_block_window(plan, lane, source);
        rp_forecast_set(next_use->forecast, lane, source, read);
    }
}

/* The first document of a source that ends after this byte of a shard. Documents of a source are in
 * the order of its shards, and within a shard in the order of its bytes, as nearly always. */
static uint64_t first_document(const struct rp_source *source, uint32_t shard, uint64_t byte)
{
    uint64_t low = 0, high = rp_source_documents(source);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct rp_extent extent = {.shard = 0};
        struct rp_error ignored;
        int code = rp_source_extent(source, middle, &extent, &ignored);
        if (code == 0 &&
            (extent.shard < shard ||
             (extent.shard == shard && extent.byte_offset + extent.tokens * extent.width <= byte)))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool begins_before(const struct rp_source *source, uint64_t document, uint32_t shard,
                          uint64_t byte)
{
    struct rp_extent extent;
    struct rp_error ignored;
    return document < rp_source_documents(source) &&
           rp_source_extent(source, document, &extent, &ignored) == 0 && extent.shard == shard &&
           extent.byte_offset < byte;
}

struct query {
    const struct rp_next_use *next_use;
    uint32_t shard;
    uint64_t first, last;
    uint64_t answer;
};

static void run_query(void *argument)
{
    struct query *query = argument;
    const struct rp_next_use *next_use = query->next_use;
    rp_sides_tokens_of(next_use->corpus, &query->shard, &query->first, &query->last);
    uint32_t shard = query->shard, number = rp_corpus_shard(next_use->corpus, shard)->source;
    const struct rp_source *source = rp_corpus_source(next_use->corpus, number);
    uint64_t documents = rp_forecast_documents(next_use->forecast);
    uint64_t document = first_document(source, shard, query->first);
    uint64_t nearest = RP_FORECAST_NEVER;
    for (uint32_t i = 0; i < BLOCKS_MAX && begins_before(source, document, shard, query->last);
         i++) {
        uint64_t block = document / documents;
        nearest = rp_min_u64(nearest, rp_forecast_distance(next_use->forecast, number, block));
        document = (block + 1) * documents;
    }
    query->answer = nearest;
}

/* Indexes are mapped. If one is cut short, the threads that plan find out, and stop the stream. */
uint64_t rp_next_use_of(void *context, uint32_t shard, uint64_t first, uint64_t last)
{
    struct query query = {context, shard, first, last, RP_FORECAST_NEVER};
    return rp_mapped_guard(run_query, &query) ? query.answer : RP_FORECAST_NEVER;
}

uint64_t rp_next_use_usual(const struct rp_next_use *next_use)
{
    uint64_t longest = 0;
    for (uint32_t s = 0; s < rp_corpus_source_count(next_use->corpus); s++)
        longest = rp_max_u64(longest, rp_forecast_epoch_tokens(next_use->forecast, s));
    return longest / 2;
}

uint64_t rp_next_use_epoch(void *context)
{
    return rp_forecast_epoch(((const struct rp_next_use *)context)->forecast, 0);
}
