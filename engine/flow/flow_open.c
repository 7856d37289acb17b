/* SPDX-License-Identifier: Apache-2.0 */
/* flow_open.c — chooses the sizes of a flow, and makes it. */
#include <errno.h>
#include <inttypes.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "corpus/sides.h"
#include "flow/block_reads.h"
#include "flow/flow_struct.h"
#include "flow/masks.h"
#include "flow/side_reads.h"

#define TICKET_BYTES (64u << 10)
#define SLOTS_MIN 8u
#define SLOTS_MAX 4096u
#define SLOTS_MAPPED 64u /* mapped tokens need no read-ahead, and so few slots stay in cache */
#define PREFETCH_BYTES_STANDARD_MAX (1ull << 30)
#define TRANSFERS_MIN 4u /* the longest transfers that fit in the data, so that reads overlap */

/* One ticket for every TICKET_BYTES of data, about the reads of a micro-batch of a few thousand
 * tokens; but tickets and the states of their micro-batches take at most a quarter of the data's
 * bytes, as long as SLOTS_MIN tickets are left. */
static uint32_t choose_slots(const struct rp_flow_options *o, uint64_t data_bytes)
{
    uint64_t wanted = rp_min_u64(SLOTS_MAX, rp_pow2_at_least(data_bytes / TICKET_BYTES));
    uint64_t sides = rp_corpus_sides(o->corpus)->all * sizeof(struct rp_side_place);
    uint64_t each = sizeof(struct rp_ticket) + o->state_bytes + sides * RP_TICKET_TRANSFERS_MAX;
    while (wanted > SLOTS_MIN && wanted * each > data_bytes / 4)
        wanted /= 2;
    return (uint32_t)rp_max_u64(wanted, SLOTS_MIN);
}

static int open_files(struct rp_flow *flow, struct rp_error *error)
{
    struct rp_error why;
    struct rp_flow_options *o = &flow->options;
    int code = rp_files_open(&flow->files, o, error);
    if (!o->page_cache)
        o->page_cache = &rp_page_cache_of_kernel;
    if (code < 0 || (o->adapts && rp_files_adapt(&flow->files, o, &why)))
        return code;
    bool bypasses_cache = o->adapts && !o->may_buffer; /* then no file is mapped for good */
    if (o->adapts)                                     /* a hint means that it can be fixed: warn */
        rp_log(why.hint[0] ? RP_LOG_WARNING : RP_LOG_INFO,
               "token files are read in one way for the whole run%s: %s%s%s",
               o->mapped && bypasses_cache ? ", but none is mapped (o_direct: on)" : "",
               why.message, why.hint[0] ? "; " : "", why.hint);
    if (o->mapped && !bypasses_cache && rp_files_map(&flow->files, &why) < 0)
        rp_log(RP_LOG_WARNING, "token files are read, not mapped: %s", why.message);
    return code;
}

static struct rp_verified_sizes verified_sizes(const struct rp_flow_options *o)
{
    return (struct rp_verified_sizes){.tokens_max = (o->seq_len + 1ull) * sizeof(uint64_t),
                                      .entries_max = rp_sidereads_part_bytes(o),
                                      .sides = rp_corpus_sides(o->corpus)->count};
}

/* To be called before packer processes are forked: each then has its own copy. */
static int open_verified(struct rp_flow *flow, struct rp_error *error)
{
    const struct rp_flow_options *o = &flow->options;
    if (!rp_files_have_hashes(&flow->files))
        return 0;
    flow->verified = rp_calloc(o->packers, sizeof *flow->verified);
    int code = flow->verified ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for packers");
    const struct rp_verified_sizes sizes = verified_sizes(o);
    for (uint32_t i = 0; i < o->packers && code >= 0; i++)
        code = rp_verified_open(&flow->verified[i], &sizes, error);
    return code;
}

static struct rp_arena_sizes choose_sizes(const struct rp_flow_options *o, bool is_mapped)
{
    uint64_t least = rp_align_up(TRANSFERS_MIN * rp_sidereads_transfer_bytes(o), RP_BLOCK_BYTES);
    uint64_t most = rp_align_up(rp_max_u64(o->prefetch_bytes, least), RP_BLOCK_BYTES);
    /* mapped tokens stay in place: only contents of a checkpoint are copied into the data */
    struct rp_arena_sizes sizes = {.ring_count = o->rank_count,
                                   .slot_count = is_mapped ? SLOTS_MAPPED : choose_slots(o, most),
                                   .side_count = rp_corpus_sides(o->corpus)->all,
                                   .data_bytes = (is_mapped ? least : most) + rp_masks_bytes(o),
                                   .state_bytes = o->state_bytes};
    /* a position may be requested until every ring has released the step after it. Tickets are at
     * most `slots` micro-batches ahead, and the plan a step ahead of them */
    sizes.state_count = (uint32_t)rp_pow2_at_least((uint64_t)sizes.slot_count + o->batch_slots +
                                                   2 * rp_queue_states(o) + 4);
    return sizes;
}

uint64_t rp_flow_prefetch_bytes(const struct rp_flow_options *options, const struct rp_plan *plan,
                                uint64_t base_row)
{
    if (options->prefetch_bytes)
        return options->prefetch_bytes;
    uint64_t windows = rp_block_reads_data_bytes(plan, options, base_row,
                                                 PREFETCH_BYTES_STANDARD_MAX);
    return rp_max_u64(windows, RP_PREFETCH_BYTES_STANDARD);
}

uint64_t rp_flow_memory_bytes(const struct rp_flow_options *options, bool is_mapped)
{
    const struct rp_arena_sizes sizes = choose_sizes(options, is_mapped);
    const struct rp_verified_sizes copies = verified_sizes(options);
    uint64_t of_packer = options->verify_blocks ? rp_verified_bytes(&copies) : 0;
    return options->packers * of_packer + rp_arena_bytes(&sizes);
}

static int create_arena(struct rp_flow *flow, struct rp_error *error)
{
    const struct rp_flow_options *o = &flow->options;
    const struct rp_arena_sizes sizes = choose_sizes(o, rp_files_are_mapped(&flow->files));
    return rp_arena_create(&flow->arena, !o->packer_processes, &sizes, error);
}

void rp_flow_join_threads(struct rp_flow *flow)
{
    rp_dispatch_join(&flow->dispatch);
    rp_residency_stop(&flow->files.residency);
    for (uint32_t i = 0; i < flow->options.readers; i++)
        rp_fetcher_join(&flow->fetchers[i]);
}

void rp_flow_free(struct rp_flow *flow)
{
    rp_reads_close(&flow->dispatch.reads);
    rp_queue_free(&flow->dispatch.queue);
    if (flow->files.files)
        rp_files_close(&flow->files);
    rp_prefault_join(&flow->prefault);
    rp_arena_close(&flow->arena);
    for (uint32_t i = 0; flow->verified && i < flow->options.packers; i++)
        rp_verified_close(&flow->verified[i]);
    free(flow->verified);
    free(flow->fetchers);
    free(flow->packers);
    free(flow->targets);
    free(flow->start_batch);
    free(flow->sums);
    free(flow->costs.ranks);
    free(flow->catch_up);
    free(flow->is_left_out);
    free(flow);
}

static int make_tables(struct rp_flow *flow, struct rp_error *error)
{
    const struct rp_flow_options *o = &flow->options;
    flow->fetchers = rp_calloc(o->readers, sizeof *flow->fetchers);
    flow->packers = rp_calloc(o->packers, sizeof *flow->packers);
    flow->targets = rp_calloc(o->rank_count, sizeof *flow->targets);
    flow->start_batch = rp_calloc(o->rank_count, sizeof *flow->start_batch);
    flow->sums = rp_calloc(o->rank_count, sizeof *flow->sums);
    flow->costs.ranks = rp_calloc(o->rank_count, sizeof *flow->costs.ranks);
    flow->catch_up = rp_calloc(o->rank_count, sizeof(struct rp_flow *));
    flow->is_left_out = rp_calloc(o->rank_count, sizeof *flow->is_left_out);
    bool are_made = flow->fetchers && flow->packers && flow->targets && flow->start_batch &&
                    flow->sums && flow->costs.ranks && flow->catch_up && flow->is_left_out;
    return are_made ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for the pipeline");
}

/* No worker runs yet: a start of the flow starts them. */
static void prepare_workers(struct rp_flow *flow)
{
    const struct rp_flow_options *o = &flow->options;
    flow->pack_plan = (struct rp_pack_plan){.arena = &flow->arena,
                                            .targets = flow->targets,
                                            .files = &flow->files,
                                            .verified = flow->verified,
                                            .packers = o->packers,
                                            .side_files = rp_corpus_sides(o->corpus)->count,
                                            .deliver = o->packer_processes ? NULL : &flow->deliver,
                                            .token_limit = o->token_limit,
                                            .pad_id = o->pad_id,
                                            .form = &o->form,
                                            .wake_fd = flow->wake_fd};
    for (uint32_t i = 0; i < o->packers; i++)
        flow->packers[i] = (struct rp_packer){.plan = &flow->pack_plan, .index = i, .pidfd = -1};
    for (uint32_t i = 0; i < o->readers; i++)
        flow->fetchers[i] = (struct rp_fetcher){
            .options = o, .arena = &flow->arena, .files = &flow->files, .index = i};
}

/* Inserted tokens are in no file, so no packer compares them with the limit. */
static int check_form(const struct rp_flow_options *o, struct rp_error *error)
{
    const struct rp_row_form *form = &o->form;
    bool is_bos = form->has_bos && form->bos_id >= o->token_limit;
    if (!is_bos && !(form->has_eos && form->eos_id >= o->token_limit))
        return 0;
    return rp_fail(
        error, -RP_E_VOCABULARY, "compare it, vocab_size and token_dtype with the tokenizer",
        "%s: expected a token id below %" PRIu64 ", found %" PRIu32, is_bos ? "bos_id" : "eos_id",
        o->token_limit, is_bos ? form->bos_id : form->eos_id);
}

int rp_flow_open(struct rp_flow **flow_out, const struct rp_flow_options *options, int wake_fd,
                 struct rp_error *error)
{
    RP_ASSERT(options->readers >= 1 && options->readers <= RP_READERS_MAX);
    RP_ASSERT(options->packers >= 1 && options->packers <= RP_PACKERS_MAX);
    RP_ASSERT(options->batch_size >= 1 && options->rank_count >= 1);
    RP_ASSERT(options->rank_first + options->rank_count <= options->dp_world_size);
    int code = check_form(options, error);
    struct rp_flow *flow = code < 0 ? NULL : rp_calloc(1, sizeof *flow);
    if (!flow)
        return code < 0 ? code : rp_fail(error, -ENOMEM, NULL, "out of memory for the pipeline");
    flow->options = *options;
    flow->wake_fd = wake_fd;
    flow->arena.segment.fd = -1;
    code = make_tables(flow, error);
    if (code >= 0)
        code = open_files(flow, error);
    if (code >= 0)
        code = open_verified(flow, error);
    if (code >= 0)
        code = create_arena(flow, error);
    if (code >= 0)
        code = rp_reads_open(&flow->dispatch.reads, &flow->options, &flow->files, &flow->arena,
                             error);
    if (code < 0) {
        rp_flow_free(flow);
        return code;
    }
    prepare_workers(flow);
    *flow_out = flow;
    return 0;
}
