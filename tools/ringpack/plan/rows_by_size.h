/* SPDX-License-Identifier: Apache-2.0 */
/* rows_by_size.h — rows by their number of documents, in steps of a factor of two. */
#ifndef RP_CMD_PLAN_ROWS_BY_SIZE_H
#define RP_CMD_PLAN_ROWS_BY_SIZE_H

#include <jansson.h>
#include <stdint.h>

/* rows[b]: rows whose number of documents has b significant bits; it is at most 2^24. */
struct rp_rows_by_size {
    uint64_t rows[26];
};

void rp_rows_by_size_add(struct rp_rows_by_size *counts, uint32_t documents);
/** A line with a bar for each range of documents that has rows; rows of padding only are left out.
 */
void rp_rows_by_size_print(const struct rp_rows_by_size *counts);
/** The same as [{"least": documents, "rows": rows}, …], owned by the caller. */
json_t *rp_rows_by_size_json(const struct rp_rows_by_size *counts);

#endif
