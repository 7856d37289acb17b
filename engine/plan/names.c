/* SPDX-License-Identifier: Apache-2.0 */
/* names.c — names for messages: of sources, and of enum values, by the words of the config. */
#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "plan/plan.h"

struct rp_plan_source_word rp_plan_source_word(const struct rp_plan_source *source, uint32_t number)
{
    struct rp_plan_source_word word;
    if (source->name)
        snprintf(word.text, sizeof word.text, "%s", source->name);
    else
        snprintf(word.text, sizeof word.text, "%" PRIu32, number);
    return word;
}

/* A value may come from a state token, so it may be out of range. */
#define NAME(names, value) ((uint32_t)(value) < RP_ARRAY_COUNT(names) ? (names)[value] : "unknown")

const char *rp_shuffle_name(enum rp_shuffle shuffle)
{
    static const char *const names[] = {"none", "document", "block"};
    return NAME(names, shuffle);
}

const char *rp_packing_name(enum rp_packing packing)
{
    static const char *const names[] = {"lookahead", "concat", "best_fit"};
    return NAME(names, packing);
}

const char *rp_plan_window_name(enum rp_packing packing)
{
    return packing == RP_PACKING_BEST_FIT ? "open_bins" : "packing_buffer";
}

const char *rp_plan_row_gap_name(enum rp_row_gap row_gap)
{
    static const char *const names[] = {"pad", "split"};
    return NAME(names, row_gap);
}

const char *rp_long_doc_name(enum rp_long_doc long_doc)
{
    static const char *const names[] = {"split", "truncate", "drop"};
    return NAME(names, long_doc);
}
