/* SPDX-License-Identifier: Apache-2.0 */
/* names — the words of the configuration file for the values of the state token. */
#include "base/bits.h"
#include "plan/plan.h"

/* Values may come from a token, so they are checked. */
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

const char *rp_fill_name(enum rp_fill fill)
{
    static const char *const names[] = {"pad", "split"};
    return NAME(names, fill);
}

const char *rp_long_doc_name(enum rp_long_doc long_doc)
{
    static const char *const names[] = {"split", "truncate", "drop"};
    return NAME(names, long_doc);
}
