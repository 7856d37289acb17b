/* SPDX-License-Identifier: Apache-2.0 */
/* manifest_inspection.h — the report of `ringpack inspect` about a manifest. */
#ifndef RP_TOOLS_MANIFEST_INSPECTION_H
#define RP_TOOLS_MANIFEST_INSPECTION_H

#include <jansson.h>
#include <stdbool.h>

/** Print it, or append it to `list`; with `scan` every page is compared with its hash. Returns an
 * exit status. */
int rp_cmd_inspect_manifest(const char *path, bool scan, bool json, bool quiet, json_t *list);

#endif
