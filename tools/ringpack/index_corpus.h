/* SPDX-License-Identifier: Apache-2.0 */
/* index_corpus.h — `ringpack index -c CONFIG`: one index of all sources, in the file that -o or the
 * config names, or the sidecars of all shards if neither does. */
#ifndef RP_TOOLS_INDEX_CORPUS_H
#define RP_TOOLS_INDEX_CORPUS_H

#include "config/config.h"
#include "declared.h"

#define RP_INDEX_WORKERS_MAX 256u

/** `sidecars` writes the sidecar of a shard. Returns the exit status. */
int rp_cmd_index_config(const struct rp_declared_verb *sidecars,
                        const struct rp_declared *arguments, const struct rp_config *config);

#endif
