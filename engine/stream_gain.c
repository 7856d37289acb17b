/* SPDX-License-Identifier: Apache-2.0 */
#include "stream_gain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mapped.h"
#include "base/mem.h"
#include "base/thread.h"
#include "plan/balance.h"
#include "plan/plan.h"
#include "stream.h"

#define STEPS_MAX 16u /* two windows */
#define WINDOW_STEPS 8u
#define ROWS_MAX (1u << 16)
#define FRAGMENTS_MAX (1u << 17)
#define GAIN_MIN 1.02
#define NICE 10

/* Also `deal: off`. */
static bool gives_deal(const struct rp_config *config)
{
    bool gives = config->deal.place.line > 0;
    for (uint32_t i = 0; i < config->stages.count; i++)
        gives |= rp_config_stage_gives(&config->stages.stages[i], "deal");
    return gives;
}

static uint64_t cost_of(const struct rp_config *config, const struct rp_row *row)
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < row->count; i++)
        cost += rp_cost_of(
            &config->cost.cost,
            (uint32_t)(rp_div_up(row->fragments[i].length, row->align) * row->align));
    return cost;
}

/* Costs of the first rows, up to the end of a stage of one seq_len. Returns how many. */
static int plan_costs(struct rp_plan *plan, const struct rp_config *config, uint64_t *costs,
                      uint32_t most, struct rp_error *error)
{
    uint32_t rows = 0;
    for (uint64_t fragments = 0; rows < most && fragments < FRAGMENTS_MAX;) {
        struct rp_row row;
        int planned = rp_plan_next(plan, &row, error);
        if (planned < 0)
            return planned;
        if (planned == 0)
            break;
        costs[rows++] = cost_of(config, &row);
        fragments += row.count;
    }
    return (int)rows;
}

static int compare(char text[RP_GAIN_BYTES], const struct rp_config *config,
                   const struct rp_balance_shape *shape, const uint64_t *costs, uint32_t rows)
{
    struct rp_balance plain = {0}, dealt = {0};
    uint32_t steps = rows / shape->step, tier = shape->ranks * shape->bundle;
    const struct rp_deal deal = {
        .window = (uint32_t)rp_min_u64(steps, WINDOW_STEPS) * shape->step,
        .step = shape->step,
        .tier = tier,
        .bundle = shape->bundle,
        .order = RP_DEAL_MIDDLE,
        .cost = config->cost.cost,
    };
    int code = rp_balance_dealt(&plain, shape, NULL, costs, steps * shape->step);
    if (code == 0)
        code = rp_balance_dealt(&dealt, shape, &deal, costs, steps * shape->step);
    if (code < 0)
        return code;
    double before = rp_balance_of_micro_steps(&plain, shape),
           after = rp_balance_of_micro_steps(&dealt, shape);
    if (before >= GAIN_MIN * after)
        snprintf(text, RP_GAIN_BYTES,
                 "rows of a micro-step differ in cost: where ranks wait for each other after each "
                 "one, they need %.2f times the time of equal rows, and %.2f times with `deal: "
                 "auto` in a new run (the first %" PRIu32 " steps, cost K %" PRIu32
                 "). `deal: off` ends this message",
                 before, after, steps, config->cost.cost.k);
    return 0;
}

int rp_gain_text(char text[RP_GAIN_BYTES], const struct rp_config *config,
                 const struct rp_corpus *corpus, struct rp_error *error)
{
    uint64_t step = config->global_batch_size;
    struct rp_plan *plan = NULL;
    text[0] = '\0';
    if (config->stream_version == 1 || config->dp_world_size == 1 || gives_deal(config) ||
        step > ROWS_MAX)
        return 0;
    uint32_t most = (uint32_t)rp_min_u64(STEPS_MAX * step, ROWS_MAX);
    uint64_t *costs = rp_calloc(most, sizeof *costs);
    int code = costs ? rp_stream_open_plan(&plan, config, corpus, error)
                     : rp_fail(error, -ENOMEM, NULL, "no memory for the costs of rows");
    if (code >= 0)
        code = plan_costs(plan, config, costs, most, error);
    const struct rp_balance_shape shape = {config->dp_world_size, config->batch_size,
                                           (uint32_t)step};
    if (code >= 0 && (uint32_t)code >= shape.step) {
        code = compare(text, config, &shape, costs, (uint32_t)code);
        if (code < 0)
            code = rp_fail(error, code, NULL, "no memory for a deal of rows");
    }
    rp_plan_close(plan);
    free(costs);
    return code < 0 ? code : 0;
}

/* ---- the log --------------------------------------------------------------------------------- */

static void log_text(void *argument)
{
    const struct rp_gain_log *log = argument;
    char text[RP_GAIN_BYTES];
    if (rp_gain_text(text, log->config, log->corpus, NULL) == 0 && text[0])
        rp_log(RP_LOG_INFO, "%s", text);
}

static void *log_main(void *argument)
{
    prctl(PR_SET_NAME, "gain");
    (void)setpriority(PRIO_PROCESS, 0, NICE); /* this thread only */
    (void)!rp_mapped_guard(log_text, argument);
    return NULL;
}

void rp_gain_log_start(struct rp_gain_log *log, const struct rp_config *config,
                       const struct rp_corpus *corpus)
{
    *log = (struct rp_gain_log){.config = config, .corpus = corpus};
    log->started = rp_thread_try(&log->thread, log_main, log) == 0;
}

void rp_gain_log_end(struct rp_gain_log *log)
{
    if (log->started)
        pthread_join(log->thread, NULL);
    log->started = false;
}
