/* SPDX-License-Identifier: Apache-2.0 */
/* index_manifest.h — `ringpack index` with a config: one manifest instead of many sidecars. */
#ifndef RP_TOOLS_INDEX_MANIFEST_H
#define RP_TOOLS_INDEX_MANIFEST_H

#include <stdbool.h>

/** Does the command line name a config? */
bool rp_cmd_index_has_config(int argc, char *const *argv);
int rp_cmd_index_manifest(int argc, char **argv);

#endif
