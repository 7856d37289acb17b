/* SPDX-License-Identifier: Apache-2.0 */
/* mask_megatron.h — the mask of a Megatron shard: its .spans file (spanfile.h), or another shard
 * with the same documents: labels as gpt-neox writes them (not shifted, -100 for an untrained
 * token), or any mask. */
#ifndef RP_CORPUS_MASK_MEGATRON_H
#define RP_CORPUS_MASK_MEGATRON_H

#include "corpus/collector.h"
#include "corpus/shard.h"

/** Add the spans of every document of a shard, whose token file is open as fd, to its new sidecar.
 * A .spans file comes first. Mask NAME of ..._text_document is ..._NAME_document; of any other
 * PREFIX it is PREFIX_NAME. Without a declaration, `label` is taken if ..._label_document exists.
 * 1: added, and *origin is set. 0: no mask. */
RP_MUST_CHECK int rp_megatron_mask(const struct rp_opened *opened, int fd,
                                   struct rp_collector *collector, struct rp_mask_origin *origin,
                                   struct rp_error *error);

/** The prefix of the shard that has mask `name` of a token file; the caller frees it. NULL when out
 * of memory. */
char *rp_megatron_mask_prefix(const char *token_path, const char *name);

#endif
