/* SPDX-License-Identifier: Apache-2.0 */
/* batches.c — the sizes of batches and steps by stage, and the steps of a run from row 0. */
#include <errno.h>
#include <inttypes.h>

#include "base/bits.h"
#include "base/mem.h"
#include "config/config.h"
#include "config/key.h"

bool rp_config_row_of_step(const struct rp_config *config, uint64_t step, uint64_t *row)
{
    struct rp_config_stage whole = {.step_rows = config->global_batch_size};
    const struct rp_config_stage *stages = config->stages.stages, *stage = &whole;
    if (config->stages.count) /* the first one is from step 0 */
        stage = &stages[RP_COUNT_UP_TO(stages, config->stages.count, first_step, step) - 1];
    return rp_mul_u64(step - stage->first_step, stage->step_rows, row) &&
           rp_add_u64(stage->from, *row, row) && *row <= INT64_MAX;
}

uint64_t rp_config_step_from(const struct rp_config *config, uint64_t row)
{
    if (config->stages.count == 0)
        return rp_div_up(row, config->global_batch_size);
    const struct rp_config_stage *stages = config->stages.stages;
    const struct rp_config_stage *stage =
        &stages[RP_COUNT_UP_TO(stages, config->stages.count, from, row) - 1];
    return stage->first_step + rp_div_up(row - stage->from, stage->step_rows);
}

/* Add the sizes of a stage, unless the stage before it has the same. */
static void add(struct rp_config_batches *batches, uint64_t from, uint64_t batch_rows,
                uint64_t step_rows, uint32_t ranks)
{
    const struct rp_batch_stage *last = batches->count ? &batches->stages[batches->count - 1]
                                                       : NULL;
    if (last && last->batch_rows == batch_rows && last->step_rows == step_rows)
        return;
    batches->stages[batches->count++] = (struct rp_batch_stage){from, batch_rows, step_rows};
    batches->rows_max = (uint32_t)rp_max_u64(batches->rows_max, batch_rows / ranks);
    batches->step_batches_max = rp_max_u64(batches->step_batches_max, step_rows / batch_rows);
}

int rp_config_finish_batches(struct rp_config *config, struct rp_error *error)
{
    struct rp_config_batches *batches = &config->batches;
    uint32_t count = config->stages.count, ranks = config->dp_world_size;
    batches->stages = rp_calloc(count ? count : 1, sizeof *batches->stages);
    if (!batches->stages)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for %" PRIu32 " stages", count);
    for (uint32_t i = 0; i < count; i++) {
        const struct rp_config_stage *stage = &config->stages.stages[i];
        add(batches, stage->from, stage->batch_rows, stage->step_rows, ranks);
    }
    if (count == 0)
        add(batches, 0, (uint64_t)config->batch_size * ranks, config->global_batch_size, ranks);
    return 0;
}
