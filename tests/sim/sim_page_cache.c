/* SPDX-License-Identifier: Apache-2.0 */
/* sim_page_cache.c — which pages of each file the machine's page cache holds, and the system calls
 * that report them. The pages of a file are there because they were read, or by a whim of the seed:
 * whenever the cache is queried, pages may have gone or come since the last query.
 *
 * Bytes are in the file, whatever the cache holds: a mapping of a page that is not there brings it,
 * as on a real machine. So no state here may change a row. */
#include "sim_wrap.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "flow/files.h"
#include "sim_files.h"

struct sim_page_cache sim_page_cache;
static uint64_t corpus_bytes; /* the last adaptive engine's */

static uint32_t pages_of(const struct sim_node *node)
{
    return (uint32_t)rp_min_u64(rp_div_up(node->bytes, SIM_PAGE_BYTES), SIM_PAGES_MAX);
}

static void set_pages(struct sim_node *node, uint64_t first, uint64_t bytes, bool are_there)
{
    uint64_t last = rp_min_u64(rp_div_up(first + bytes, SIM_PAGE_BYTES), pages_of(node));
    for (uint64_t page = first / SIM_PAGE_BYTES; page < last; page++)
        node->is_cached[page] = are_there;
}

void sim_pages_bring(struct sim_node *node, uint64_t first, uint64_t bytes)
{
    set_pages(node, first, bytes, true);
}

void sim_pages_drop(struct sim_node *node)
{
    set_pages(node, 0, node->bytes, false);
}

/* Pages of the file, one after another, that come or go by themselves. */
static void have_a_whim(struct sim_node *node)
{
    bool go = sim_chance(&sim.random, sim_page_cache.go);
    if (node->bytes == 0 || (!go && !sim_chance(&sim.random, sim_page_cache.come)))
        return;
    uint64_t first = sim_below(&sim.random, node->bytes);
    uint64_t bytes = 1 + sim_below(&sim.random, node->bytes - first);
    sim_trace("the page cache %s %u bytes at %u", go ? "loses" : "gets", (unsigned)bytes,
              (unsigned)first);
    set_pages(node, first, bytes, !go);
}

/* How many pages with bytes [first, first + bytes) are there. */
static uint64_t count_pages(const struct sim_node *node, uint64_t first, uint64_t bytes)
{
    uint64_t last = rp_min_u64(rp_div_up(first + bytes, SIM_PAGE_BYTES), pages_of(node)), count = 0;
    for (uint64_t page = first / SIM_PAGE_BYTES; page < last; page++)
        count += node->is_cached[page];
    return count;
}

bool sim_pages_hold(struct sim_node *node, uint64_t first, uint64_t bytes)
{
    have_a_whim(node);
    uint64_t last = rp_div_up(rp_min_u64(first + bytes, node->bytes), SIM_PAGE_BYTES);
    return first >= node->bytes || count_pages(node, first, bytes) == last - first / SIM_PAGE_BYTES;
}

/* ---- system calls ---------------------------------------------------------------------------- */

long sim_cachestat(int fd, const uint64_t range[2], uint64_t counts[5])
{
    struct sim_node *node = sim_node_of(fd);
    if (!node || sim_page_cache.asked != SIM_COUNTED)
        return fail_with(node ? ENOSYS : EBADF);
    have_a_whim(node);
    counts[0] = count_pages(node, range[0], range[1]);
    return 0;
}

WRAP(int, mincore, void *address, size_t bytes, unsigned char *listed)
{
    sim_step();
    uint64_t offset;
    struct sim_node *node = sim_mapped_node(address, &offset);
    if (!node || sim_page_cache.asked != SIM_LISTED)
        return fail_with(ENOMEM);
    have_a_whim(node);
    for (uint64_t at = 0; at < bytes; at += SIM_PAGE_BYTES)
        listed[at / SIM_PAGE_BYTES] = count_pages(node, offset + at, 1) != 0;
    return 0;
}

WRAP(int, posix_fadvise, int fd, off_t offset, off_t bytes, int advice)
{
    (void)fd, (void)offset, (void)bytes, (void)advice;
    return 0;
}

WRAP(int, madvise, void *address, size_t bytes, int advice)
{
    enum { WILLNEED = 3, POPULATE_READ = 22, COLLAPSE = 25 };
    uint64_t offset;
    struct sim_node *node = sim.current ? sim_mapped_node(address, &offset) : NULL;
    if (node && (advice == WILLNEED || advice == POPULATE_READ) && sim_chance(&sim.random, 500))
        sim_pages_bring(node, offset, bytes);
    return sim.current && advice == COLLAPSE ? fail_with(EINVAL) : 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A start needs more memory than a corpus that does not fit: so only the decision how the corpus is
 * read hears of such a machine. */
static uint64_t available(void)
{
    return sim_page_cache.is_short ? sim_below(&sim.random, 2 * corpus_bytes + 1)
                                   : UINT64_C(1) << 40;
}

WRAP(bool, rp_files_adapt, struct rp_files *files, const struct rp_flow_options *options,
     struct rp_error *why)
{
    static struct rp_page_cache page_cache;
    page_cache = rp_page_cache_of_kernel;
    page_cache.available = available;
    corpus_bytes = rp_corpus_file_bytes(files->corpus);
    struct rp_flow_options with_it = *options;
    with_it.page_cache = &page_cache;
    return __real_rp_files_adapt(files, &with_it, why);
}
