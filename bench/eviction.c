/* SPDX-License-Identifier: Apache-2.0 */
/* ringpack_eviction — the hits of the block cache if it evicts the blocks that the plan needs last
 * (Belady's rule, as engines do), and if it evicts the least recently used ones (LRU, as other
 * caches do).
 *
 *     ringpack_eviction [BLOCKS [ROUNDS]]
 *
 * It is the engine's cache, with real files of one page for each block in a directory of /tmp, and
 * the engine's plan; only the reads are left out. Both rules go through the one function that gives
 * a cache the next use: LRU answers with the age of the last use. In one world there is one source;
 * in the other, half of the blocks are of a source with nine tenths of the weight. A round is as
 * many reads as there are blocks.
 *
 * Of one source, no rule can have more than the share of the blocks that there is room for: the end
 * of an epoch is between two uses of a block, and a block that is absent at that moment is fetched.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cache/cache.h"
#include "plan/forecast.h"

#define BLOCK_DOCUMENTS 64u
#define WINDOW 16u
#define ROUNDS_MAX 64u
#define TURN 10u /* each TURN-th read is of the second source, if there are two */

enum rule { BELADY, LRU, RULES };
static const char *const rule_names[RULES] = {"belady", "lru"};

struct world {
    struct rp_plan *plan;
    struct rp_forecast *forecast;
    struct rp_cache_object *objects;  /* one for each block */
    uint32_t sources, blocks, rounds; /* blocks: of all sources together */
    enum rule rule;
    uint64_t now;
    uint64_t *last_use; /* [blocks] */
};

static void fail(const char *message)
{
    fprintf(stderr, "ringpack_eviction: %s\n", message);
    exit(2);
}

static uint64_t length_of(const void *lengths, uint64_t document)
{
    (void)lengths;
    return 100 + document % 7;
}

static void open_plan(struct world *world)
{
    struct rp_plan_config config = {.seed = 1,
                                    .num_epochs = 0,
                                    .seq_len = 4096,
                                    .shuffle = RP_SHUFFLE_BLOCK,
                                    .block_documents = BLOCK_DOCUMENTS,
                                    .window_blocks = WINDOW,
                                    .packing = RP_PACKING_CONCAT,
                                    .max_docs_per_row = 4096,
                                    .lanes = 1};
    uint64_t documents = (uint64_t)world->blocks / world->sources * BLOCK_DOCUMENTS;
    struct rp_plan_source sources[2] = {
        {.documents = documents, .weight = world->sources == 2 ? TURN - 1 : 1, .length = length_of},
        {.documents = documents, .weight = 1, .length = length_of}};
    uint64_t tokens[2] = {documents * 103, documents * 103};
    struct rp_error error;
    if (rp_plan_open(&world->plan, &config, sources, world->sources, &error) < 0 ||
        rp_forecast_open(&world->forecast, world->plan, tokens, &error) < 0)
        fail(error.message);
}

static void close_plan(struct world *world)
{
    rp_forecast_close(world->forecast);
    rp_plan_close(world->plan);
}

static uint64_t next_use(void *context, uint32_t object, uint64_t first, uint64_t last)
{
    const struct world *world = context;
    (void)first, (void)last;
    uint32_t each = world->blocks / world->sources;
    return world->rule == LRU ? world->now - world->last_use[object]
                              : rp_forecast_distance(world->forecast, object / each, object % each);
}

static uint64_t epoch_of(void *context)
{
    const struct world *world = context;
    return rp_forecast_epoch(world->forecast, 0);
}

static struct rp_cache *open_cache(struct world *world, const char *directory, uint32_t percent)
{
    const struct rp_cache_options options = {.directory = directory,
                                             .bytes = (uint64_t)world->blocks * percent / 100 *
                                                      RP_CACHE_PAGE_BYTES,
                                             .objects = world->objects,
                                             .object_count = world->blocks,
                                             .next_use = next_use,
                                             .epoch = epoch_of,
                                             .context = world};
    struct rp_cache *cache;
    struct rp_error error;
    if (rp_cache_open(&cache, &options, &error) < 0)
        fail(error.message);
    return cache;
}

/* A block is read: from the cache, or from the server, and then it is offered to the cache. */
static bool read_block(struct rp_cache *cache, uint32_t block)
{
    static uint8_t page[RP_CACHE_PAGE_BYTES];
    struct rp_entry *kept = rp_entry_open(cache, block);
    if (!kept)
        fail("out of memory");
    bool is_hit = rp_entry_view(kept, 0, sizeof page).head > 0;
    memset(page, (int)block, sizeof page);
    rp_entry_keep(kept, 0, page, sizeof page);
    rp_cache_flush(cache);
    rp_entry_close(kept);
    return is_hit;
}

/* Blocks that the cache had, in each round. */
static void run(struct world *world, const char *directory, uint32_t percent, uint32_t *hits)
{
    struct rp_cache *cache = open_cache(world, directory, percent);
    uint64_t at[2] = {0, 0};
    memset(world->last_use, 0, world->blocks * sizeof *world->last_use);
    memset(hits, 0, world->rounds * sizeof *hits);
    for (world->now = 1; world->now <= (uint64_t)world->rounds * world->blocks; world->now++) {
        uint32_t source = world->sources == 2 && world->now % TURN == 0;
        struct rp_plan_block block;
        if (!rp_plan_block_at(world->plan, 0, source, at[source]++, &block))
            fail("the stream ended");
        rp_forecast_set(world->forecast, 0, source, at[source]);
        uint32_t number = source * (world->blocks / 2) + (uint32_t)block.number;
        world->last_use[number] = world->now;
        hits[(world->now - 1) / world->blocks] += read_block(cache, number);
    }
    rp_cache_close(cache);
}

static void name_objects(struct world *world)
{
    world->objects = rp_calloc(world->blocks, sizeof *world->objects);
    world->last_use = rp_calloc(world->blocks, sizeof *world->last_use);
    if (!world->objects || !world->last_use)
        fail("out of memory");
    for (uint32_t b = 0; b < world->blocks; b++) {
        world->objects[b] = (struct rp_cache_object){
            .name = rp_asprintf("%u", b), .identity = "1", .bytes = RP_CACHE_PAGE_BYTES};
        if (!world->objects[b].name)
            fail("out of memory");
    }
}

static void show(struct world *world, uint32_t percent)
{
    char directory[] = "/tmp/ringpack-eviction-XXXXXX", command[64];
    uint32_t hits[ROUNDS_MAX];
    double sum = 0;
    if (!mkdtemp(directory))
        fail("cannot make a directory in /tmp");
    run(world, directory, percent, hits);
    printf("%7" PRIu32 " %3" PRIu32 " %%  %-7s", world->sources, percent, rule_names[world->rule]);
    for (uint32_t round = 1; round < world->rounds; round++) {
        sum += hits[round];
        printf(" %5.1f", 100.0 * hits[round] / world->blocks);
    }
    printf("   %5.1f\n", 100.0 * sum / world->blocks / (world->rounds - 1));
    fflush(stdout);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    if (system(command) != 0)
        fail("cannot remove a directory in /tmp");
}

int main(int argc, char **argv)
{
    static const uint32_t percents[] = {10, 30, 60};
    struct world world = {.blocks = argc > 1 ? (uint32_t)atoi(argv[1]) : 1000,
                          .rounds = argc > 2 ? (uint32_t)atoi(argv[2]) : 4};
    if (world.blocks < 100 || world.blocks % 2 || world.rounds < 2 || world.rounds > ROUNDS_MAX)
        fail("expected at least 100 blocks, an even number, and 2 to 64 rounds");
    name_objects(&world);
    printf("%" PRIu32 " blocks; hits in %% of the reads\nsources room  rule    round 2 ... mean\n",
           world.blocks);
    for (world.sources = 1; world.sources <= 2; world.sources++) {
        open_plan(&world);
        for (size_t p = 0; p < sizeof percents / sizeof *percents; p++)
            for (world.rule = BELADY; world.rule < RULES; world.rule++)
                show(&world, percents[p]);
        close_plan(&world);
    }
    for (uint32_t b = 0; b < world.blocks; b++)
        free((void *)(uintptr_t)world.objects[b].name);
    free(world.objects);
    free(world.last_use);
    return 0;
}
