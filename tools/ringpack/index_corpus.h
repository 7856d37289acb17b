/* SPDX-License-Identifier: Apache-2.0 */
/* index_corpus.h — `ringpack index -c CONFIG`: the index of all sources that the config, or -o,
 * names; the sidecars of all shards where neither does. */
#ifndef RP_TOOLS_INDEX_CORPUS_H
#define RP_TOOLS_INDEX_CORPUS_H

#include <stdbool.h>

#include "declared.h"

/** Does the command line name a config? */
bool rp_cmd_index_has_config(int argc, char *const *argv);
/** `sidecars` makes those of shards. Returns the exit status. */
int rp_cmd_index_config(const struct rp_declared_verb *sidecars, int argc, char **argv);

#endif
