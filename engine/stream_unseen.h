/* SPDX-License-Identifier: Apache-2.0 */
/* stream_unseen.h — the state that `unseen_of` of a source names (STREAM2.md section 12.7), read
 * from its file: a state token, or a checkpoint. For stream_view.c. */
#ifndef RP_STREAM_UNSEEN_H
#define RP_STREAM_UNSEEN_H

#include "base/hash.h"
#include "config/config.h"
#include "corpus/corpus.h"
#include "plan/v2/spec.h"
#include "plan/v2/unseen.h"

/** Open the documents that the state of source `number` has used. `view` has the source's lengths
 * and its prints without `unseen_of`. Errors name the file: -RP_E_CONFIG (it has no state), -errno
 * of the file, errors of rp_unseen_open. */
RP_MUST_CHECK int rp_used_open(struct rp_unseen **unseen_out, const struct rp_config *config,
                               uint32_t number, const struct rp_corpus *corpus,
                               const struct rp_source_view *view, struct rp_error *error);

#endif
