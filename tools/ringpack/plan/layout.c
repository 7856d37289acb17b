/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"

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

static int check(const struct rp_job_layout *layout, const struct rp_config *config, bool has_parts,
                 struct rp_error *error)
{
    uint64_t step = config->global_batch_size, tier = (uint64_t)layout->dp * layout->mb;
    if (step > STEP_MAX)
        return REFUSE(error, "give a smaller --global-batch-size",
                      "a step has %" PRIu64 " rows (global_batch_size); at most %u are compared",
                      step, STEP_MAX);
    if (step % tier != 0)
        return REFUSE(error, "change dp or mb, or give --global-batch-size",
                      "dp=%u micro-batches of mb=%u rows do not divide a step of %" PRIu64
                      " rows (global_batch_size)",
                      layout->dp, layout->mb, step);
    if (layout->pp > STAGES_MAX || layout->pp > layout->batches)
        return REFUSE(error,
                      "a pipeline needs a micro-batch for each stage: use smaller pp, dp or "
                      "mb, or a greater --global-batch-size",
                      "pp=%u stages, but a rank has %u micro-batches in a step", layout->pp,
                      layout->batches);
    if (config->seq_len % (2 * (uint64_t)layout->cp) != 0 && layout->cp > 1)
        return REFUSE(error, "use a cp that divides half of seq_len",
                      "cp=%u ranks cannot share rows of %u tokens, two equal parts each",
                      layout->cp, config->seq_len);
    if (has_parts && layout->vp > 1 && layout->batches % layout->pp != 0)
        return REFUSE(error, "an interleaved pipeline needs micro-batches in a multiple of pp",
                      "vp=%u: a rank has %u micro-batches in a step, no multiple of pp=%u",
                      layout->vp, layout->batches, layout->pp);
    return 0;
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
        .mb = values[MB] ? values[MB] : config->batch_size,
        .vp = values[VP] ? values[VP] : 2,
    };
    uint64_t tier = (uint64_t)layout->dp * layout->mb;
    layout->batches = (uint32_t)(config->global_batch_size / tier);
    layout->shape = (struct rp_balance_shape){layout->dp, layout->mb,
                                              (uint32_t)config->global_batch_size};
    int code = check(layout, config, values[VP] > 0, error);
    if (layout->pp == 1 || layout->batches % layout->pp != 0 || layout->vp > 64)
        layout->vp = 1;
    return code;
}
