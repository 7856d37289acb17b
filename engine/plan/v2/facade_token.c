/* SPDX-License-Identifier: Apache-2.0 */
/* facade_token.c — the facts of a token of version 2 in the terms of plan/plan.h, without a plan.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/v2/facade.h"

bool rp_v2_is_token(const void *token, size_t bytes)
{
    return bytes >= RP_STATE_HEAD_BYTES && rp_state_head(token).stream_version == 2;
}

int rp_v2_state_info(const void *token, size_t bytes, struct rp_state_info *info,
                     struct rp_error *error)
{
    struct rp_planner_token_info found;
    int code = rp_planner_token_info(token, bytes, &found, error);
    if (code < 0)
        return code;
    *info = (struct rp_state_info){
        .stream_version = 2,
        .config = {.seed = found.seed,
                   .seq_len = found.seq_len,
                   .shuffle = found.shuffle,
                   .block_documents = found.block_documents,
                   .window_blocks = found.window_blocks,
                   .packing = found.packing,
                   .window = found.window,
                   .row_gap = found.row_gap,
                   .long_doc = found.long_doc,
                   .max_docs_per_row = found.max_docs_per_row,
                   .lanes = 1,
                   .tokenizer = found.tokenizer},
        .next_row = found.position.next_row,
        .window_first = found.position.window_first,
        .window_end = found.position.window_end,
        .digest = found.digest,
        .source_count = found.source_count,
        .bytes = found.bytes,
        .counts = rp_v2_counts_of(&found.counts),
    };
    info->counts.buffered = found.waiting; /* as its pieces have it */
    return 0;
}

bool rp_v2_has_records_of(struct rp_plan_v2 *v2, const void *token, size_t bytes)
{
    struct rp_planner_token_info info;
    if (rp_planner_token_info(token, bytes, &info, NULL) < 0 || rp_v2_rewind(v2, NULL) < 0)
        return false;
    uint64_t row = info.position.next_row;
    return rp_hash128_equal(info.records, rp_calendar_chains(v2->now.calendar, row).records);
}

/* ---- the part of the contract that a token has ----------------------------------------------- */

static void add_source(struct rp_record_writer *writer, uint32_t j,
                       const struct rp_planner_token_source *source)
{
    const struct rp_source_prints *prints = &source->prints;
    char name[RP_RECORD_NAME_MAX + 1];
    snprintf(name, sizeof name, "source[%04" PRIu32 "].full", j);
    if (prints->full)
        rp_record_add(writer, '~', name, "%016" PRIx64, prints->full);
    snprintf(name, sizeof name, "source[%04" PRIu32 "].name", j);
    rp_record_add(writer, '=', name, "%s", source->name);
    snprintf(name, sizeof name, "source[%04" PRIu32 "].sampled", j);
    rp_record_add(writer, '=', name, "%016" PRIx64, prints->sampled);
    snprintf(name, sizeof name, "source[%04" PRIu32 "].selection", j);
    rp_record_add(writer, '=', name, "%016" PRIx64, prints->selection);
}

int rp_v2_state_contract(const void *token, size_t bytes, struct rp_record_writer *writer,
                         struct rp_error *error)
{
    struct rp_planner_token_info info;
    struct rp_planner_token_source *sources = NULL;
    uint32_t count = 0;
    char hex[RP_HASH_HEX_BYTES];
    int code = rp_planner_token_info(token, bytes, &info, error);
    if (code == 0)
        code = rp_planner_token_sources(token, bytes, &sources, &count, error);
    if (code < 0)
        return code;
    rp_record_add(writer, '=', "block_documents", "%" PRIu32, info.block_documents);
    rp_calendar_add_id(writer, "bos_id", info.bos_id);
    rp_calendar_add_id(writer, "eos_id", info.eos_id);
    rp_record_add(writer, '=', "group", "%" PRIu32, info.group);
    rp_record_add(writer, '=', "long_doc", "%s", rp_long_doc_name(info.long_doc));
    rp_record_add(writer, '=', "seed", "%" PRIu64, info.seed);
    rp_record_add(writer, '=', "shuffle", "%s", rp_shuffle_name(info.shuffle));
    for (uint32_t j = 0; j < count; j++)
        add_source(writer, j, &sources[j]);
    free(sources);
    rp_record_add(writer, '=', "stream_version", "2");
    if (rp_hash128_is_known(info.tokenizer))
        rp_record_add(writer, '~', "tokenizer", "%s", rp_hash128_hex(info.tokenizer, hex));
    rp_record_add(writer, '=', "window_blocks", "%" PRIu32, info.window_blocks);
    return writer->out_of_memory
               ? rp_fail(error, -ENOMEM, NULL, "no memory for the contract of a state token")
               : 0;
}
