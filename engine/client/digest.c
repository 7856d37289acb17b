/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c — the digests of a batch that a trainer holds. */
#include "base/fail.h"
#include "base/row_digest.h"
#include "ringpack/client.h"

/* Where row i of a section of [rows][seq_len] begins; NULL if the run does not have it. */
static const void *row_of(const struct rp_geometry *geometry, const struct rp_batch *batch,
                          enum rp_section section, uint32_t i)
{
    uint64_t row_bytes = geometry->sections[section].bytes / geometry->rows;
    const uint8_t *begin = batch->sections[section];
    return begin ? begin + i * row_bytes : NULL;
}

static void add_digest(const struct rp_geometry *geometry, const struct rp_batch *batch,
                       bool labelled, uint64_t sum[2])
{
    const struct rp_row_info *rows = batch->sections[RP_SECTION_ROWS];
    const struct rp_row_plan *plans = batch->sections[RP_SECTION_ROW_PLANS];
    const int32_t *lengths = batch->sections[RP_SECTION_DOC_LENS];
    enum rp_dtype dtype = (enum rp_dtype)geometry->sections[RP_SECTION_INPUT_IDS].dtype;
    struct rp_hash128 total = {sum[0], sum[1]};
    for (uint32_t i = 0; i < batch->rows; i++, lengths += geometry->max_docs_per_row) {
        if (rows[i].fragments == 0)
            continue;
        const struct rp_row_tokens row = {
            .lengths = lengths,
            .fragments = rows[i].fragments,
            .align = plans ? plans[i].align : 1,
            .tokens = row_of(geometry, batch, RP_SECTION_INPUT_IDS, i),
            .dtype = dtype};
        const struct rp_row_labels labels = {
            .labels = row_of(geometry, batch, RP_SECTION_LABELS, i),
            .dtype = (enum rp_dtype)geometry->sections[RP_SECTION_LABELS].dtype,
            .mode = (enum rp_label_mode)geometry->label_mode,
            .loss_mask = row_of(geometry, batch, RP_SECTION_LOSS_MASK, i)};
        struct rp_hash128 hash = labelled ? rp_row_labelled_hash(&row, &labels) : rp_row_hash(&row);
        uint64_t number = plans ? plans[i].planned : rows[i].row;
        total = rp_hash128_sum(total, rp_row_digest(number, hash));
    }
    sum[0] = total.low;
    sum[1] = total.high;
}

void rp_batch_digest(const struct rp_geometry *geometry, const struct rp_batch *batch,
                     uint64_t sum[2])
{
    add_digest(geometry, batch, false, sum);
}

int rp_batch_labelled_digest(const struct rp_geometry *geometry, const struct rp_batch *batch,
                             uint64_t sum[2], struct rp_error *error)
{
    if (!batch->sections[RP_SECTION_LABELS] && !batch->sections[RP_SECTION_LOSS_MASK])
        return rp_fail(error, -RP_E_USAGE, "serve the run with `--sections labels,…`",
                       "the run's batches have neither labels nor a loss mask");
    if (!batch->sections[RP_SECTION_LABELS] && geometry->label_mode == RP_LABELS_ACROSS_CUTS)
        return rp_fail(error, -RP_E_USAGE, "serve the run with `--sections labels,…`",
                       "the run's batches have only a loss mask, and with label_across_cuts the "
                       "label of a fragment's end is a token of another row");
    add_digest(geometry, batch, true, sum);
    return 0;
}
