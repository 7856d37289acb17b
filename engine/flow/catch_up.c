/* SPDX-License-Identifier: Apache-2.0 */
/* catch_up.c — makes catch-up flows. flow.c runs them. */
#include "flow/catch_up.h"

#include "flow/flow_struct.h"

/* Enough for some reads at a time. */
#ifdef RP_SIMULATION
#define CATCH_UP_BYTES (64u << 10)
#else
#define CATCH_UP_BYTES (512u << 10)
#endif
#define CATCH_UP_FILES 256u /* open at a time, if the descriptor limit allows it */

static uint32_t catch_up_descriptors(const struct rp_flow_options *main)
{
    uint64_t own = 2 * (uint64_t)rp_corpus_data_count(main->corpus); /* direct and buffered */
    uint64_t all = main->other_descriptors + own +
                   CATCH_UP_FILES * (RP_CATCH_UPS_MAX + RP_ENDINGS_MAX);
    return rp_descriptors_allow(all) ? CATCH_UP_FILES : RP_DESCRIPTORS_MIN;
}

static struct rp_flow_options catch_up_options(const struct rp_flow_options *main, uint32_t ring)
{
    struct rp_flow_options options = *main;
    RP_ASSERT(ring < options.rank_count && options.rank_count > 1);
    options.readers = options.packers = 1;
    options.packer_processes = options.mapped = options.adapts = false;
    options.rank_first += ring;
    options.rank_count = 1;
    options.prefetch_bytes = CATCH_UP_BYTES;
    options.descriptors_max = catch_up_descriptors(main);
    options.next_use = NULL; /* it rereads bytes that the flow has read */
    return options;
}

uint64_t rp_flow_catch_up_memory_bytes(const struct rp_flow_options *main)
{
    if (main->rank_count == 1)
        return 0;
    struct rp_flow_options options = catch_up_options(main, 0);
    return rp_flow_memory_bytes(&options, false);
}

int rp_flow_make_catch_up(struct rp_flow **made, const struct rp_flow *flow, uint32_t ring,
                          struct rp_error *error)
{
    struct rp_flow_options options = catch_up_options(&flow->options, ring);
    if (rp_files_are_cached(&flow->files))
        options.o_direct = false; /* the page cache already has these bytes */
    int code = rp_flow_open(made, &options, flow->wake_fd, error);
    if (code >= 0) /* most documents of a block are of other rings */
        (*made)->dispatch.reads.no_block_reads = true;
    return code;
}
