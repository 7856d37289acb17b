/* SPDX-License-Identifier: Apache-2.0 */
/* column_inspection.h — the output of `ringpack inspect` about a file of a side column. */
#ifndef RP_TOOLS_COLUMN_INSPECTION_H
#define RP_TOOLS_COLUMN_INSPECTION_H

#include <jansson.h>
#include <stdbool.h>

/** Print it, or append it to `list`; with `scan` every block is compared with its hash. Returns an
 * exit status. */
int rp_cmd_inspect_column(const char *path, bool scan, bool json, json_t *list);

#endif
