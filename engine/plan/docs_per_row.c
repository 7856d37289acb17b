/* SPDX-License-Identifier: Apache-2.0 */
/* The default: skip the shortest documents of a source, which together hold one hundredth of the
 * tokens. A row must have room for as many documents of the next length as fill it. So a row
 * reaches the limit with a gap only if nearly all of its documents are among the shortest. */
#include "plan/docs_per_row.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

#define STANDARD_MIN 32u
#define SHORT_SHARE 100u /* the shortest documents hold 1/SHORT_SHARE of the tokens */
/* Open rows are part of the state token, and every batch carries a state token. */
#define OPEN_ROWS_BYTES_MAX (4u << 20)
#define COST_ROWS 64u
#define COST_DOCUMENTS_MAX (1u << 18)

struct sample {
    uint64_t lengths[RP_SAMPLE_MAX];
    uint32_t count;
};

/* Empty and damaged documents are left out. */
static void take_sample(struct sample *sample, const struct rp_plan_source *source)
{
    uint64_t sampled = rp_min_u64(source->documents, RP_SAMPLE_MAX);
    sample->count = 0;
    for (uint64_t i = 0; i < sampled; i++) {
        uint64_t length = source->length(source->lengths, rp_sample_document(source->documents, i));
        if (length != 0 && length != RP_LENGTH_BAD)
            sample->lengths[sample->count++] = length;
    }
}

static uint64_t sum_up_to(const uint32_t *sizes, uint32_t count, uint32_t size)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += sizes[i] <= size ? sizes[i] : 0;
    return sum;
}

/* The size is found by halving and not by sorting, which takes ten times as long. */
uint64_t rp_docs_wanted(const uint32_t *sizes, uint32_t count, uint32_t seq_len)
{
    uint64_t sum = sum_up_to(sizes, count, seq_len);
    uint32_t low = 1, high = seq_len;
    if (sum == 0)
        return 1;
    RP_PARTITION(low, high, middle, sum_up_to(sizes, count, middle) * SHORT_SHARE <= sum)
    /* + 1: the row may begin with the rest of a document */
    return rp_div_up(seq_len, low) + 1;
}

uint32_t rp_docs_standard(uint32_t seq_len, uint64_t wanted, uint64_t open_rows)
{
    uint64_t least = rp_min_u64(seq_len, rp_max_u64(STANDARD_MIN, seq_len / 32));
    uint64_t most = seq_len;
    if (open_rows)
        most = OPEN_ROWS_BYTES_MAX / (sizeof(struct rp_fragment) * open_rows);
    return (uint32_t)rp_max_u64(least, rp_min_u64(wanted, most));
}

/* A document longer than a row counts as a row. */
static uint64_t wanted_of(const struct sample *sample, uint32_t seq_len)
{
    uint32_t sizes[RP_SAMPLE_MAX];
    for (uint32_t i = 0; i < sample->count; i++)
        sizes[i] = (uint32_t)rp_min_u64(sample->lengths[i], seq_len);
    return rp_docs_wanted(sizes, sample->count, seq_len);
}

/* ---- the cost of a limit --------------------------------------------------------------------- */

struct filling {
    uint64_t rows, padding;
    uint64_t gap;
    uint32_t documents;
};

static void end_row(struct filling *filling, uint32_t seq_len)
{
    filling->rows++;
    filling->padding += filling->gap;
    filling->gap = seq_len;
    filling->documents = 0;
}

/* Cut documents into rows, one after the other, so that only the limit leaves gaps. */
static void add_document(struct filling *filling, uint64_t length, uint32_t limit, uint32_t seq_len)
{
    while (length > 0) {
        uint64_t taken = rp_min_u64(length, filling->gap);
        length -= taken;
        filling->gap -= taken;
        filling->documents++;
        if (filling->gap == 0 || filling->documents == limit)
            end_row(filling, seq_len);
        if (length > seq_len && filling->gap == seq_len) {
            filling->rows += length / seq_len; /* the full rows of a long document */
            length %= seq_len;
        }
    }
}

static double cost_of(const struct sample *sample, const struct rp_plan_config *config,
                      uint32_t limit)
{
    struct filling filling = {.gap = config->seq_len};
    uint32_t stride = config->shuffle == RP_SHUFFLE_NONE ? 1 : RP_SAMPLE_RUN, begin = 0, at = 0;
    for (uint32_t i = 0; sample->count && i < COST_DOCUMENTS_MAX && filling.rows < COST_ROWS; i++) {
        uint64_t length = sample->lengths[at];
        if (length > config->seq_len && config->long_doc != RP_LONG_DOC_SPLIT)
            length = config->long_doc == RP_LONG_DOC_DROP ? 0 : config->seq_len;
        add_document(&filling, length, limit, config->seq_len);
        at += stride;
        if (at >=
            sample->count) { /* shuffled order: one document of each run, then the next of each */
            begin = (begin + 1) % (uint32_t)rp_min_u64(stride, sample->count);
            at = begin;
        }
    }
    return filling.rows ? (double)filling.padding / ((double)filling.rows * config->seq_len) : 0;
}

/* ---- all sources ----------------------------------------------------------------------------- */

int rp_docs_per_row(struct rp_docs_per_row *docs_per_row, const struct rp_plan_config *config,
                    const struct rp_plan_source *sources, uint32_t source_count,
                    struct rp_error *error)
{
    struct sample *sample = rp_calloc(1, sizeof *sample);
    if (!sample)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a sample of document lengths");
    uint64_t wanted = 1;
    for (uint32_t s = 0; s < source_count; s++) {
        take_sample(sample, &sources[s]);
        wanted = rp_max_u64(wanted, wanted_of(sample, config->seq_len));
    }
    *docs_per_row = (struct rp_docs_per_row){
        .wanted = (uint32_t)rp_min_u64(wanted, config->seq_len)};
    uint64_t open_rows = config->packing != RP_PACKING_BEST_FIT
                             ? 0
                             : rp_max_u64(1, (uint64_t)config->window * config->lanes);
    docs_per_row->standard = rp_docs_standard(config->seq_len, docs_per_row->wanted, open_rows);
    uint32_t limit = config->max_docs_per_row ? config->max_docs_per_row : docs_per_row->standard;
    double weights = 0, cost = 0;
    for (uint32_t s = 0; s < source_count && limit < docs_per_row->wanted; s++) {
        take_sample(sample, &sources[s]);
        weights += (double)sources[s].weight;
        cost += (double)sources[s].weight * cost_of(sample, config, limit);
    }
    docs_per_row->cost = weights > 0 ? cost / weights : 0;
    free(sample);
    return 0;
}
