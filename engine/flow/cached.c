/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/cached.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"
#include "flow/files.h"

/* Parts of a file that are sampled, and their bytes. */
#define PLACES 64u
#define PLACE_BYTES (64u << 10)
#define PROBED_PARTS 4u /* each is probed at several places */
#define CACHED_FILES_MAX 1024u

/* Bytes of the sampled parts, and how many of them the page cache lacks. */
struct sample {
    uint64_t sampled, missing;
};

static void sample_part(const struct rp_page_cache *page_cache,
                        const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes,
                        struct sample *sample)
{
    sample->sampled += bytes;
    sample->missing += rp_min_u64(page_cache->missing(file, first, bytes), bytes);
}

/* To count or list the pages of a long file takes long, so many short parts are sampled. Each probe
 * takes long, so a few long parts are sampled of a file that is probed. */
static void sample_file(const struct rp_page_cache *page_cache, struct rp_page_cache_file *file,
                        struct sample *sample)
{
    file->way = page_cache->find_way(file);
    bool is_probed = file->way == RP_PAGE_CACHE_PROBED;
    uint32_t parts = is_probed ? PROBED_PARTS : PLACES;
    for (uint32_t i = 0; i < parts; i++) {
        uint64_t first = rp_align_down(file->bytes / parts * i, PLACE_BYTES);
        uint64_t most = is_probed ? rp_max_u64(file->bytes / parts, PLACE_BYTES) : PLACE_BYTES;
        sample_part(page_cache, file, first, rp_min_u64(most, file->bytes - first), sample);
    }
}

static bool sample_shard(const struct rp_page_cache *page_cache, const struct rp_shard *shard,
                         struct sample *sample)
{
    if (shard->bytes == 0)
        return true;
    struct rp_page_cache_file file = {.fd = rp_file_open_read(shard->path, NULL, NULL),
                                      .bytes = shard->bytes};
    if (file.fd < 0)
        return false;
    void *map = mmap(NULL, shard->bytes, PROT_READ, MAP_SHARED, file.fd, 0);
    file.map = map == MAP_FAILED ? NULL : map; /* mincore refuses it then, and it is probed */
    sample_file(page_cache, &file, sample);
    if (file.map)
        munmap(map, shard->bytes);
    close(file.fd);
    return true;
}

bool rp_cached_is_whole(const struct rp_corpus *corpus, const struct rp_page_cache *page_cache)
{
    struct sample sample = {0};
    uint32_t shards = rp_corpus_data_count(corpus), sampled = 0, at = 0;
    if (rp_corpus_index_path(corpus) && shards > RP_FILES_AT_START)
        return false;
    uint32_t files = rp_corpus_local_count(corpus);
    uint32_t sampled_max = files < CACHED_FILES_MAX ? files : CACHED_FILES_MAX;
    for (uint32_t i = 0; i < shards && sampled < sampled_max; i++) {
        const struct rp_shard *shard = rp_corpus_shard(corpus, i);
        if (shard->url || at++ != (uint64_t)sampled * files / sampled_max)
            continue;
        if (!sample_shard(page_cache, shard, &sample))
            return false;
        sampled++;
    }
    return sample.missing * 50 <= sample.sampled;
}
