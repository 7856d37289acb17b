/* SPDX-License-Identifier: Apache-2.0 */
/* index_inspection.h — the output of `ringpack inspect` about an index. */
#ifndef RP_TOOLS_INDEX_INSPECTION_H
#define RP_TOOLS_INDEX_INSPECTION_H

#include <jansson.h>
#include <stdbool.h>

/** Print it, or append it to `list`; with `scan` every page is compared with its hash. Returns an
 * exit status. */
int rp_cmd_inspect_index(const char *path, bool scan, bool json, bool quiet, json_t *list);

#endif
