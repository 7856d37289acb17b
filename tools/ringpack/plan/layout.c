/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"

#define PART_MAX (1u << 20)
#define STAGES_MAX 4096u
#define STEP_MAX (1u << 20)

enum { DP, PP, CP, MB, VP, PARTS };
static const char *const names[PARTS] = {"dp", "pp", "cp", "mb", "vp"};

#define REFUSE(error, hint, ...) rp_fail(error, -RP_E_USAGE, hint, "--layout: " __VA_ARGS__)

/* One NAME=NUMBER of `bytes` bytes. */
static int read_part(const char *text, size_t bytes, uint32_t *values, struct rp_error *error)
{
    const char *equals = memchr(text, '=', bytes);
    size_t name = equals ? (size_t)(equals - text) : bytes, part = 0;
    uint64_t number = 0;
    while (part < PARTS && (strlen(names[part]) != name || memcmp(names[part], text, name) != 0))
        part++;
    if (part == PARTS)
        return REFUSE(error,
                      "name its parts: --layout dp=8,pp=4,cp=2,mb=1. Tensor parallel ranks divide "
                      "every row alike, so they change no figure",
                      "`%.*s` is none of dp, pp, cp, mb, vp", (int)rp_min_u64(name, 64), text);
    if (values[part])
        return REFUSE(error, "give each part once", "%s is given twice", names[part]);
    for (size_t i = name + 1; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9' || number > PART_MAX) {
            number = 0;
            break;
        }
        number = 10 * number + (uint64_t)(text[i] - '0');
    }
    if (number == 0 || number > PART_MAX)
        return REFUSE(error, "give a whole number: --layout dp=8,pp=4",
                      "%s: expected a number from 1 to %u, found `%.*s`", names[part], PART_MAX,
                      equals ? (int)rp_min_u64(bytes - name - 1, 64) : 0, equals ? equals + 1 : "");
    values[part] = (uint32_t)number;
    return 0;
}

/* The first part is the config's own; later ones are of stages. */
static int check(const struct rp_job_layout *layout, const struct rp_layout_part *part,
                 uint64_t step, bool has_parts, struct rp_error *error)
{
    uint32_t mb = part->shape.bundle;
    char where[64] = "global_batch_size";
    if (part->from > 0)
        snprintf(where, sizeof where, "global_batch_size from row %" PRIu64 " on", part->from);
    if (step > STEP_MAX)
        return REFUSE(error, "give a smaller --global-batch-size",
                      "a step has %" PRIu64 " rows (%s); at most %u are compared", step, where,
                      STEP_MAX);
    if (step % ((uint64_t)layout->dp * mb) != 0)
        return REFUSE(error, "change dp or mb, or give --global-batch-size",
                      "dp=%u micro-batches of mb=%u rows do not divide a step of %" PRIu64
                      " rows (%s)",
                      layout->dp, mb, step, where);
    if (layout->pp > STAGES_MAX || layout->pp > part->batches)
        return REFUSE(error,
                      "a pipeline needs a micro-batch for each stage: use smaller pp, dp or "
                      "mb, or a greater --global-batch-size",
                      "pp=%u stages, but a rank has %u micro-batches in a step (%s)", layout->pp,
                      part->batches, where);
    if (has_parts && layout->vp > 1 && part->batches % layout->pp != 0)
        return REFUSE(error, "an interleaved pipeline needs micro-batches in a multiple of pp",
                      "vp=%u: a rank has %u micro-batches in a step, no multiple of pp=%u (%s)",
                      layout->vp, part->batches, layout->pp, where);
    return 0;
}

static int make_parts(struct rp_job_layout *layout, const struct rp_config *config, bool has_parts,
                      struct rp_error *error)
{
    const struct rp_config_batches *sizes = &config->batches;
    bool divides = layout->pp > 1 && layout->vp <= 64;
    int code = 0;
    layout->parts = rp_calloc(sizes->count, sizeof *layout->parts);
    if (!layout->parts)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a layout");
    for (uint32_t i = 0; i < sizes->count && code >= 0; i++) {
        const struct rp_batch_stage *size = &sizes->stages[i];
        struct rp_layout_part *part = &layout->parts[layout->part_count++];
        uint64_t mb = layout->mb ? layout->mb : size->batch_rows / config->dp_world_size;
        *part = (struct rp_layout_part){size->from,
                                        (uint32_t)(size->step_rows / (layout->dp * mb)),
                                        {layout->dp, (uint32_t)mb, (uint32_t)size->step_rows}};
        code = check(layout, part, size->step_rows, has_parts, error);
        layout->batches = (uint32_t)rp_max_u64(layout->batches, part->batches);
        layout->step = (uint32_t)rp_max_u64(layout->step, part->shape.step);
        divides &= part->batches % layout->pp == 0;
    }
    layout->vp = divides ? layout->vp : 1;
    return code;
}

void rp_layout_close(struct rp_job_layout *layout)
{
    free(layout->parts);
    *layout = (struct rp_job_layout){0};
}

const struct rp_layout_part *rp_layout_at(const struct rp_job_layout *layout, uint64_t row)
{
    uint32_t i = layout->part_count - 1;
    while (i > 0 && layout->parts[i].from > row)
        i--;
    return &layout->parts[i];
}

int rp_layout_read(struct rp_job_layout *layout, const char *text, const struct rp_config *config,
                   struct rp_error *error)
{
    uint32_t values[PARTS] = {0};
    for (const char *at = text;; at++) {
        size_t bytes = strcspn(at, ",");
        int code = read_part(at, bytes, values, error);
        if (code < 0)
            return code;
        at += bytes;
        if (*at == '\0')
            break;
    }
    *layout = (struct rp_job_layout){
        .dp = values[DP] ? values[DP] : config->dp_world_size,
        .pp = values[PP] ? values[PP] : 1,
        .cp = values[CP] ? values[CP] : 1,
        .mb = values[MB],
        .vp = values[VP] ? values[VP] : 2,
    };
    if (layout->cp > 1 && config->seq_len % (2 * (uint64_t)layout->cp) != 0)
        return REFUSE(error, "use a cp that divides half of seq_len",
                      "cp=%u ranks cannot share rows of %u tokens, two equal parts each",
                      layout->cp, config->seq_len);
    return make_parts(layout, config, values[VP] > 0, error);
}
