/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "cmd.h"
#include "plan/rows_by_size.h"

void rp_rows_by_size_add(struct rp_rows_by_size *counts, uint32_t documents)
{
    counts->rows[documents ? 32 - __builtin_clz(documents) : 0]++;
}

void rp_rows_by_size_print(const struct rp_rows_by_size *counts)
{
    uint64_t most = 1;
    for (size_t b = 1; b < RP_ARRAY_COUNT(counts->rows); b++)
        most = rp_max_u64(most, counts->rows[b]);
    for (size_t b = 1; b < RP_ARRAY_COUNT(counts->rows); b++) {
        if (!counts->rows[b])
            continue;
        char range[48], count[RP_CMD_TEXT_BYTES];
        uint64_t first = UINT64_C(1) << (b - 1), last = 2 * first - 1;
        if (b == 1)
            snprintf(range, sizeof range, "1");
        else
            snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, first, last);
        int bar = (int)rp_div_up(counts->rows[b] * 40, most);
        printf("  %19s %12s  %.*s\n", range, rp_cmd_count_text(counts->rows[b], count), bar,
               "########################################");
    }
}

json_t *rp_rows_by_size_json(const struct rp_rows_by_size *counts)
{
    json_t *list = json_array();
    for (size_t b = 1; b < RP_ARRAY_COUNT(counts->rows); b++)
        if (counts->rows[b])
            json_array_append_new(list, json_pack("{s:I, s:I}", "least", (json_int_t)1 << (b - 1),
                                                  "rows", (json_int_t)counts->rows[b]));
    return list;
}
