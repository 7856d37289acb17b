/* SPDX-License-Identifier: Apache-2.0 */
/* cached — see cached.h. */
#include "flow/cached.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"
#include "flow/files.h"

#define PLACES 64u
#define PLACE_BYTES (64u << 10)
#define PROBED_PARTS 4u /* each is probed at several places */
#define CACHED_FILES_MAX 1024u

/* Of what is looked at, in bytes. */
struct look {
    uint64_t looked, missing;
};

static void look_at_part(const struct rp_page_cache *page_cache,
                         const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes,
                         struct look *look)
{
    look->looked += bytes;
    look->missing += rp_min_u64(page_cache->missing(file, first, bytes), bytes);
}

/* To count pages of a long file takes long, and so does each probe: so of a file that is counted or
 * listed, short parts are looked at, and of one that is probed, a few long ones. */
static void look_at_file(const struct rp_page_cache *page_cache, struct rp_page_cache_file *file,
                         struct look *look)
{
    file->way = page_cache->find_way(file);
    bool is_probed = file->way == RP_PAGE_CACHE_PROBED;
    uint32_t parts = is_probed ? PROBED_PARTS : PLACES;
    for (uint32_t i = 0; i < parts; i++) {
        uint64_t first = rp_align_down(file->bytes / parts * i, PLACE_BYTES);
        uint64_t most = is_probed ? rp_max_u64(file->bytes / parts, PLACE_BYTES) : PLACE_BYTES;
        look_at_part(page_cache, file, first, rp_min_u64(most, file->bytes - first), look);
    }
}

static bool look_at_shard(const struct rp_page_cache *page_cache, const struct rp_shard *shard,
                          struct look *look)
{
    if (shard->bytes == 0)
        return true;
    struct rp_page_cache_file file = {.fd = rp_file_open_read(shard->path, NULL, NULL),
                                      .bytes = shard->bytes};
    if (file.fd < 0)
        return false;
    void *map = mmap(NULL, shard->bytes, PROT_READ, MAP_SHARED, file.fd, 0);
    file.map = map == MAP_FAILED ? NULL : map; /* mincore refuses it then, and it is probed */
    look_at_file(page_cache, &file, look);
    if (file.map)
        munmap(map, shard->bytes);
    close(file.fd);
    return true;
}

bool rp_cached_is_whole(const struct rp_corpus *corpus, const struct rp_page_cache *page_cache)
{
    struct look look = {0};
    uint32_t shards = rp_corpus_shard_count(corpus), looks = 0, at = 0;
    if (rp_corpus_manifest_path(corpus) && shards > RP_FILES_AT_START)
        return false;
    uint32_t files = rp_corpus_file_count(corpus);
    uint32_t looks_max = files < CACHED_FILES_MAX ? files : CACHED_FILES_MAX;
    for (uint32_t i = 0; i < shards && looks < looks_max; i++) {
        const struct rp_shard *shard = rp_corpus_shard(corpus, i);
        if (shard->url || at++ != (uint64_t)looks * files / looks_max)
            continue;
        if (!look_at_shard(page_cache, shard, &look))
            return false;
        looks++;
    }
    return look.missing * 50 <= look.looked;
}
