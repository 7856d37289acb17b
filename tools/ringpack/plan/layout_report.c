/* SPDX-License-Identifier: Apache-2.0 */
/* layout_report.c — the comparison of a layout as tables and bars, and as JSON; see layout_tally.h.
 */
#include <inttypes.h>

#include "cmd.h"
#include "plan/layout_tally.h"
#include "plan/v2/deal.h"

#define BAR 40

static void window_text(const struct rp_layout_choice *choice, char text[16])
{
    if (choice->steps == 0)
        snprintf(text, 16, "off");
    else
        snprintf(text, 16, "%u step%s", choice->steps, choice->steps == 1 ? "" : "s");
}

static uint32_t orders_of(const struct rp_layout_choice *choice)
{
    return choice->steps > 0 ? RP_DEAL_ORDERS : 1;
}

static void print_head(const struct rp_layout_tally *tally)
{
    const struct rp_job_layout *layout = &tally->layout;
    char rows[RP_CMD_TEXT_BYTES];
    const struct rp_layout_part *part = tally->step_list[0].part;
    printf("layout                dp=%u pp=%u cp=%u mb=%u: steps of %u rows, %u micro-batches on a "
           "rank\n",
           layout->dp, layout->pp, layout->cp, part->shape.bundle, part->shape.step, part->batches);
    for (uint32_t z = 1; z < tally->steps; z++) {
        if (tally->step_list[z].part == part)
            continue;
        part = tally->step_list[z].part;
        printf("  from step %u on        mb=%u: steps of %u rows, %u micro-batches on a rank\n", z,
               part->shape.bundle, part->shape.step, part->batches);
    }
    printf("  from the lengths of the first %u steps (%s rows), cost(l) = l * (%u + l)%s; 1 = no "
           "rank waits\n",
           tally->steps, rp_cmd_count_text(tally->rows_compared, rows), tally->cost.k,
           tally->cost.h ? ", less in layers with a window" : "");
    if (layout->cp > 1)
        puts("  cp divides each row evenly (head-tail), so it divides costs and changes no figure");
    if (tally->config->stream_version == 1)
        puts("  this run has stream_version 1, which has no deal: `stream_version: 2` has it");
}

static void print_waits(const struct rp_layout_tally *tally)
{
    puts("                              largest over mean             spread between steps");
    puts("  deal            step  micro-step  micro-batch    cost  sources  long docs    memory");
    for (uint32_t i = 0; i < tally->choice_count; i++) {
        const struct rp_layout_choice *choice = &tally->choices[i];
        char window[16], bytes[RP_CMD_TEXT_BYTES];
        window_text(choice, window);
        printf("  %-12s%8.3f%12.3f%13.3f%6.2f %%%7.2f %%%9.2f %%%10s\n", window, choice->step,
               choice->micro_step, choice->micro_batch, 100 * choice->cost_spread,
               100 * choice->source_spread, 100 * choice->long_spread,
               choice->steps ? rp_cmd_bytes_text(choice->bytes, bytes) : "-");
    }
}

/* A bar for the time that ranks wait at barriers of micro-steps. */
static void print_bars(const struct rp_layout_tally *tally)
{
    double most = 1e-9;
    for (uint32_t i = 0; i < tally->choice_count; i++)
        if (tally->choices[i].micro_step - 1 > most)
            most = tally->choices[i].micro_step - 1;
    puts("  time lost at a barrier for each micro-step");
    for (uint32_t i = 0; i < tally->choice_count; i++) {
        const struct rp_layout_choice *choice = &tally->choices[i];
        char window[16];
        window_text(choice, window);
        printf("  %-12s%7.1f %% %.*s\n", window, 100 * (choice->micro_step - 1),
               (int)(BAR * (choice->micro_step - 1) / most + 0.5),
               "########################################");
    }
}

static void print_pipelines(const struct rp_layout_tally *tally, int kind)
{
    const struct rp_job_layout *layout = &tally->layout;
    if (kind == 0)
        printf("  1F1B, %u stages: time of a step over the time with equal micro-batches (without "
               "bubble)\n",
               layout->pp);
    else
        printf("  interleaved 1F1B, %u parts on a stage\n", layout->vp);
    printf("  %-14s", "deal, order");
    for (uint32_t o = 0; o < RP_DEAL_ORDERS; o++)
        printf("%16s", rp_deal_order_name((enum rp_deal_order)o));
    putchar('\n');
    for (uint32_t i = 0; i < tally->choice_count; i++) {
        char window[16];
        window_text(&tally->choices[i], window);
        printf("  %-14s", window);
        for (uint32_t o = 0; o < orders_of(&tally->choices[i]); o++) {
            char text[32];
            const struct rp_layout_time *time = &tally->choices[i].times[o][kind];
            snprintf(text, sizeof text, "%.3f (%.3f)", time->equal, time->ideal);
            printf("%16s", text);
        }
        putchar('\n');
    }
}

void rp_layout_print(const struct rp_layout_tally *tally)
{
    if (!tally->rows)
        return;
    print_head(tally);
    print_waits(tally);
    print_bars(tally);
    if (tally->layout.pp > 1)
        print_pipelines(tally, 0);
    if (tally->layout.vp > 1)
        print_pipelines(tally, 1);
    else if (tally->layout.pp > 1)
        printf("  not interleaved: micro-batches are no multiple of %u stages, or vp=1\n",
               tally->layout.pp);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *times_json(const struct rp_layout_choice *choice, int kind)
{
    json_t *times = json_object();
    for (uint32_t o = 0; o < orders_of(choice); o++) {
        const char *name = choice->steps ? rp_deal_order_name((enum rp_deal_order)o) : "planned";
        json_object_set_new(times, name,
                            json_pack("{s:f, s:f}", "over_equal", choice->times[o][kind].equal,
                                      "over_ideal", choice->times[o][kind].ideal));
    }
    return times;
}

void rp_layout_json(const struct rp_layout_tally *tally, json_t *report)
{
    if (!tally->rows)
        return;
    const struct rp_job_layout *layout = &tally->layout;
    const struct rp_layout_part *part = tally->step_list[0].part;
    json_t *windows = json_array(), *steps = json_array();
    for (uint32_t z = 0; z < tally->steps; z++)
        json_array_append_new(steps, json_integer(tally->step_list[z].part->shape.step));
    for (uint32_t i = 0; i < tally->choice_count; i++) {
        const struct rp_layout_choice *choice = &tally->choices[i];
        json_t *window = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "window_steps",
                                   (json_int_t)choice->steps, "step", choice->step, "micro_step",
                                   choice->micro_step, "micro_batch", choice->micro_batch,
                                   "cost_spread", choice->cost_spread, "source_spread",
                                   choice->source_spread, "long_spread", choice->long_spread,
                                   "window_bytes", (json_int_t)choice->bytes);
        if (layout->pp > 1)
            json_object_set_new(window, "pipeline", times_json(choice, 0));
        if (layout->vp > 1)
            json_object_set_new(window, "pipeline_interleaved", times_json(choice, 1));
        json_array_append_new(windows, window);
    }
    json_t *compared = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:f, s:o}", "dp",
        (json_int_t)layout->dp, "pp", (json_int_t)layout->pp, "cp", (json_int_t)layout->cp, "mb",
        (json_int_t)part->shape.bundle, "vp", (json_int_t)layout->vp, "step_rows",
        (json_int_t)part->shape.step, "micro_batches", (json_int_t)part->batches, "steps",
        (json_int_t)tally->steps, "rows_of_steps", steps, "cost_k", (json_int_t)tally->cost.k,
        "long_share", tally->long_share, "windows", windows);
    json_object_set_new(report, "layout", compared);
}
