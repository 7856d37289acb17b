/* SPDX-License-Identifier: Apache-2.0 */
/* prefill.c — the filler.
 *
 * Flow: choose the block that is needed soonest → its runs in the file → pieces as long as a
 * reader's → those that are not kept are fetched → compared with the hashes of the sidecar → kept.
 */
#include "flow/prefill.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mapped.h"
#include "base/mem.h"
#include "base/thread.h"

/* Between two searches for a range to fetch, while none is found. */
#define IDLE_NS 5000000u
/* After a range that could not be fetched. */
#define FAILURE_NS 5000000000u

struct fetching {
    struct rp_io_object object;
    struct rp_entry *cache_entry; /* NULL: this slot is unused */
    const struct rp_shard *shard;
    uint32_t number; /* its number in the cache */
    uint64_t offset;
    uint32_t bytes;
    uint8_t *buffer;
};

struct rp_prefill {
    struct rp_io_chosen chosen;
    struct rp_cache *cache;
    const struct rp_next_use *next_use;
    struct rp_plan_blocks blocks;

    uint64_t *position; /* [lane, source]: of the next block to fill */
    uint64_t *seen;     /* [lane, source]: where readers were last */
    /* The block under way: its remaining documents and runs. */
    uint32_t pair;
    struct rp_plan_block rest;
    struct rp_block_read runs;
    uint32_t run;
    uint64_t at; /* in the run */

    struct rp_io *io;
    struct fetching fetching[RP_CACHE_PREFILLS_MAX];
    uint32_t in_flight;
    uint64_t pause_until_ns;

    pthread_t thread;
    struct rp_a32 is_stopping;
};

/* ---- which block ----------------------------------------------------------------------------- */

static uint64_t mean_bytes(const struct rp_prefill *prefill, uint32_t number)
{
    const struct rp_source *source = rp_corpus_source(prefill->next_use->corpus, number);
    double tokens = (double)rp_source_tokens(source) / (double)rp_source_documents(source);
    return (uint64_t)(tokens * (double)prefill->blocks.documents *
                      rp_corpus_widest(prefill->next_use->corpus)) +
           1;
}

/* Number of blocks by which the fill position of a lane and a source is ahead of their readers. It
 * is never behind them, and goes back with them. */
static uint64_t blocks_ahead(struct rp_prefill *prefill, uint32_t pair)
{
    uint64_t read = rp_forecast_position(prefill->next_use->forecast,
                                         pair / prefill->blocks.sources,
                                         pair % prefill->blocks.sources);
    if (read < prefill->seen[pair] || prefill->position[pair] < read)
        prefill->position[pair] = read;
    prefill->seen[pair] = read;
    return prefill->position[pair] - read;
}

/* The block that is needed soonest of those that are not filled. */
static bool choose_block(struct rp_prefill *prefill)
{
    const struct rp_forecast *forecast = prefill->next_use->forecast;
    uint32_t lanes = prefill->blocks.are_shared ? 1 : prefill->blocks.lanes;
    uint64_t nearest = UINT64_MAX, bytes = 0;
    for (uint32_t pair = 0; pair < lanes * prefill->blocks.sources; pair++) {
        uint32_t lane = pair / prefill->blocks.sources, source = pair % prefill->blocks.sources;
        uint64_t ahead = blocks_ahead(prefill, pair);
        uint64_t distance = rp_forecast_tokens(forecast, source, ahead);
        struct rp_plan_block block;
        if (!rp_forecast_is_local(forecast, lane))
            continue;
        bytes += ahead * mean_bytes(prefill, source);
        if (distance < nearest &&
            rp_forecast_block_at(forecast, lane, source, prefill->position[pair], &block)) {
            nearest = distance;
            prefill->pair = pair;
            prefill->rest = block;
        }
    }
    if (nearest == UINT64_MAX || bytes >= RP_PREFILL_AHEAD_BYTES) {
        prefill->rest.documents = 0;
        return false;
    }
    prefill->position[prefill->pair]++;
    return true;
}

/* The next part of the block within one file, or the next block. False at the end. */
static bool next_runs(struct rp_prefill *prefill)
{
    if (prefill->rest.documents == 0 && !choose_block(prefill))
        return false;
    struct rp_plan_block part = prefill->rest;
    prefill->run = 0;
    prefill->at = 0;
    if (!rp_block_runs_find(prefill->next_use->corpus, &part, &prefill->runs)) {
        prefill->runs.run_count = 0;
        prefill->rest.documents = 0;
        return true;
    }
    prefill->rest.first_document += part.documents;
    prefill->rest.documents -= part.documents;
    return true;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static struct fetching *unused_slot(struct rp_prefill *prefill)
{
    for (uint32_t i = 0; i < RP_CACHE_PREFILLS_MAX; i++)
        if (!prefill->fetching[i].cache_entry)
            return &prefill->fetching[i];
    return NULL;
}

/* The next piece of the run, cut as rp_reads_fill_block does; false at its end. */
static bool next_piece(struct rp_prefill *prefill, uint32_t piece, uint64_t *offset,
                       uint32_t *bytes)
{
    const struct rp_shard *shard = rp_corpus_shard(prefill->next_use->corpus, prefill->runs.shard);
    const struct rp_block_run *run = &prefill->runs.runs[prefill->run];
    uint64_t first = rp_align_down(run->first, RP_CACHE_PAGE_BYTES) + prefill->at;
    uint64_t last = rp_min_u64(rp_align_up(run->last, RP_CACHE_PAGE_BYTES), shard->bytes);
    if (first >= last) {
        prefill->run++;
        prefill->at = 0;
        return false;
    }
    *offset = first;
    *bytes = (uint32_t)rp_min_u64(piece, last - first);
    prefill->at += *bytes;
    return true;
}

static void close_slot(struct rp_prefill *prefill, struct fetching *it)
{
    prefill->chosen.method->close_object(&it->object);
    rp_entry_close(it->cache_entry);
    free(it->buffer);
    *it = (struct fetching){0};
}

static void begin_fetching(struct rp_prefill *prefill, struct fetching *it)
{
    int number = it->buffer ? rp_entry_prefill_begin(it->cache_entry, it->offset, it->bytes) : -1;
    uint32_t lane = prefill->pair / prefill->blocks.sources;
    uint32_t source = prefill->pair % prefill->blocks.sources;
    if (number < 0) {
        close_slot(prefill, it);
        return;
    }
    it->number = (uint32_t)number;
    /* readers search for prefills after they have moved on: either they see this one, or it is late
     */
    if (rp_forecast_position(prefill->next_use->forecast, lane, source) >=
        prefill->position[prefill->pair]) {
        rp_entry_prefill_end(it->cache_entry, it->number, NULL);
        close_slot(prefill, it);
        prefill->runs.run_count = 0;
        prefill->rest.documents = 0;
        return;
    }
    const struct rp_io_read read = {.object = it->object.handle,
                                    .bytes = it->bytes,
                                    .bytes_needed = it->bytes,
                                    .alignment = 1,
                                    .offset = it->offset,
                                    .buffer = it->buffer,
                                    .tag = (uint64_t)(it - prefill->fetching)};
    rp_io_submit(prefill->io, &read, 1);
    prefill->in_flight++;
}

/* Fetch the next piece that is not kept. False if no piece is left to fetch. */
static bool fetch_next(struct rp_prefill *prefill)
{
    struct fetching *it = unused_slot(prefill);
    uint32_t number = prefill->runs.shard;
    if (!it)
        return false;
    if (prefill->run >= prefill->runs.run_count)
        return next_runs(prefill);
    const struct rp_shard *shard = rp_corpus_shard(prefill->next_use->corpus, number);
    const struct rp_io_place place = {.path = shard->url,
                                      .bytes = shard->bytes,
                                      .identity = shard->identity,
                                      .cache = prefill->cache,
                                      .number = number};
    bool is_kept = shard->url && shard->identity[0];
    struct rp_entry *cache_entry = is_kept ? rp_entry_open(prefill->cache, number) : NULL;
    if (!cache_entry || prefill->chosen.method->open_object(&it->object, &place, NULL) < 0) {
        prefill->runs.run_count = 0; /* a file on a disk, or no memory: the reader sees to it */
        rp_entry_close(cache_entry);
        return true;
    }
    it->cache_entry = cache_entry;
    it->shard = shard;
    while (next_piece(prefill, it->object.read_bytes, &it->offset, &it->bytes)) {
        struct rp_cache_held held = rp_entry_view(cache_entry, it->offset, it->bytes);
        if (held.head == it->bytes)
            continue;
        it->buffer = malloc(it->bytes);
        begin_fetching(prefill, it);
        return true;
    }
    close_slot(prefill, it);
    return true;
}

/* ---- fetches that have arrived --------------------------------------------------------------- */

static bool is_right(const struct fetching *it)
{
    const uint64_t *hashes = it->shard->block_hashes;
    for (uint64_t at = 0; hashes && at < it->bytes; at += RP_BLOCK_BYTES)
        if (rp_hash64(it->buffer + at, rp_min_u64(RP_BLOCK_BYTES, it->bytes - at)) !=
            hashes[(it->offset + at) / RP_BLOCK_BYTES])
            return false;
    return true;
}

static void take_done(struct rp_prefill *prefill)
{
    struct rp_io_done done[RP_CACHE_PREFILLS_MAX];
    unsigned count = rp_io_wait(prefill->io, done, RP_CACHE_PREFILLS_MAX, 0);
    for (unsigned i = 0; i < count; i++) {
        struct fetching *it = &prefill->fetching[done[i].tag];
        bool is_good = done[i].result == 0 && is_right(it);
        rp_entry_prefill_end(it->cache_entry, it->number, is_good ? it->buffer : NULL);
        close_slot(prefill, it);
        prefill->in_flight--;
        if (!is_good)
            prefill->pause_until_ns = rp_now_ns() + FAILURE_NS;
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static bool is_stopping(void *context)
{
    return rp_a32_load_relaxed(&((const struct rp_prefill *)context)->is_stopping);
}

static bool may_fetch(const struct rp_prefill *prefill)
{
    return rp_a32_load_acquire(&prefill->next_use->started) && /* PAIRS next-use-started */
           rp_now_ns() >= prefill->pause_until_ns &&
           rp_cache_may_prefill(prefill->cache, RP_PREFILL_BYTES / RP_CACHE_PREFILLS_MAX);
}

/* Indexes are mapped. If one is cut short, the threads that plan find out, and stop the stream. */
static void prefetch(void *context)
{
    struct rp_prefill *prefill = context;
    while (!is_stopping(prefill)) {
        bool has_more = may_fetch(prefill) && fetch_next(prefill);
        if (prefill->in_flight > 0)
            take_done(prefill);
        else if (!has_more)
            rp_sleep_ns(IDLE_NS);
    }
}

static void *prefill_main(void *context)
{
    struct rp_prefill *prefill = context;
    const struct rp_io_options options = {.depth = RP_CACHE_PREFILLS_MAX,
                                          .file_method = prefill->chosen.file_method,
                                          .may_fall_back = prefill->chosen.may_fall_back,
                                          .is_stopping = is_stopping,
                                          .context = prefill,
                                          .is_prefill = true};
    prctl(PR_SET_NAME, "prefill");
    if (rp_io_open(&prefill->io, prefill->chosen.method, &options, NULL) < 0)
        return NULL;
    (void)!rp_mapped_guard(prefetch, prefill);
    rp_io_close(prefill->io);
    for (uint32_t i = 0; i < RP_CACHE_PREFILLS_MAX; i++) {
        struct fetching *it = &prefill->fetching[i];
        if (!it->cache_entry)
            continue;
        rp_entry_prefill_end(it->cache_entry, it->number, NULL);
        close_slot(prefill, it);
    }
    return NULL;
}

static int start(struct rp_prefill *prefill, struct rp_error *error)
{
    uint64_t pairs = (uint64_t)prefill->blocks.lanes * prefill->blocks.sources;
    prefill->position = rp_calloc(pairs, sizeof *prefill->position);
    prefill->seen = rp_calloc(pairs, sizeof *prefill->seen);
    if (!prefill->position || !prefill->seen)
        return rp_fail(error, -ENOMEM, NULL, "out of memory to fill the cache");
    int failed = rp_thread_start(&prefill->thread, prefill_main, prefill);
    return failed ? rp_fail(error, -failed, NULL, "cannot start a thread that fills the cache") : 0;
}

static void free_prefill(struct rp_prefill *prefill)
{
    free(prefill->position);
    free(prefill->seen);
    free(prefill);
}

int rp_prefill_open(struct rp_prefill **prefill_out, const struct rp_io_chosen *io,
                    struct rp_cache *cache, const struct rp_next_use *next_use,
                    const struct rp_plan_blocks *blocks, struct rp_error *error)
{
    *prefill_out = NULL;
    if (blocks->documents == 0)
        return 0;
    struct rp_prefill *prefill = rp_calloc(1, sizeof *prefill);
    if (!prefill)
        return rp_fail(error, -ENOMEM, NULL, "out of memory to fill the cache");
    *prefill = (struct rp_prefill){
        .chosen = *io, .cache = cache, .next_use = next_use, .blocks = *blocks};
    int code = start(prefill, error);
    if (code < 0)
        free_prefill(prefill);
    else
        *prefill_out = prefill;
    return code;
}

void rp_prefill_close(struct rp_prefill *prefill)
{
    if (!prefill)
        return;
    rp_a32_store_relaxed(&prefill->is_stopping, 1);
    pthread_join(prefill->thread, NULL);
    free_prefill(prefill);
}
