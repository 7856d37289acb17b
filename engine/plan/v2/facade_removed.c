/* SPDX-License-Identifier: Apache-2.0 */
/* facade_removed.c — a plan whose config lacks sources that have joined (STREAM2.md section 9.3).
 * It is opened before it gets a token, at row 0, where these sources have a weight. */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "plan/v2/facade.h"

static void no_lengths(const void *context, const uint64_t *documents, uint32_t count,
                       uint64_t *tokens)
{
    (void)context;
    (void)documents;
    memset(tokens, 0, count * sizeof *tokens);
}

static int no_prints(const void *context, uint64_t documents, struct rp_source_prints *prints,
                     struct rp_error *error)
{
    (void)context;
    (void)documents;
    (void)error;
    *prints = (struct rp_source_prints){0};
    return 0;
}

int rp_v2_stand_in(struct rp_plan_v2 *v2, struct rp_stream_spec *spec, struct rp_error *error)
{
    size_t bytes = spec->source_count * sizeof *v2->stand_ins;
    bool lacks = false;
    for (uint32_t s = 0; s < spec->source_count; s++)
        lacks |= spec->sources[s].is_absent;
    if (!lacks)
        return 0;
    v2->stand_ins = rp_calloc(1, bytes);
    if (!v2->stand_ins)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a plan");
    memcpy(v2->stand_ins, spec->sources, bytes);
    for (uint32_t s = 0; s < spec->source_count; s++)
        if (v2->stand_ins[s].is_absent)
            v2->stand_ins[s] = (struct rp_stream_source){
                .name = spec->sources[s].name,
                .documents = spec->fixed.group * (UINT64_C(1) << 40),
                .range_end = RP_NO_ROW,
                .view = {.lengths = no_lengths, .prints = no_prints},
            };
    spec->sources = v2->stand_ins;
    return 0;
}

int rp_v2_fail_removed(const struct rp_plan_v2 *v2, struct rp_error *error)
{
    uint32_t s = 0;
    while (!v2->spec.sources[s].is_absent)
        s++;
    return rp_fail(error, -RP_E_MISMATCH,
                   "start with a state or checkpoint of its run; leave `removed` out of a new run",
                   "rows from row 0 on cannot be planned: source %s is removed",
                   v2->spec.sources[s].name);
}
