/* SPDX-License-Identifier: Apache-2.0 */
/* inspection.h — print an inspected shard, for people or as JSON. */
#ifndef RP_TOOLS_INSPECTION_H
#define RP_TOOLS_INSPECTION_H

#include <jansson.h>

#include "corpus/corpus.h"

void rp_inspection_print(const char *path, const struct rp_inspection *inspection);

/** Print a warning if the EOS of the shard is doubtful (corpus/eos.h). */
void rp_inspection_doubt(const char *path, const struct rp_inspection *inspection);

/** Its name and hash, or null if it is not known. */
json_t *rp_inspection_tokenizer(const struct rp_tokenizer_id *id);

/** A new reference. */
json_t *rp_inspection_json(const char *path, const struct rp_inspection *inspection);

#endif
