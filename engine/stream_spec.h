/* SPDX-License-Identifier: Apache-2.0 */
/* stream_spec.h — a config of stream version 2, compiled to the inputs of its plan
 * (plan/v2/spec.h): views of the sources, stages by rows, skipped rows. As stream.h, it stands
 * above config, corpus and plan. */
#ifndef RP_STREAM_SPEC_H
#define RP_STREAM_SPEC_H

#include "base/fail.h"
#include "config/config.h"
#include "corpus/corpus.h"
#include "plan/v2/spec.h"

/* Owns all memory of its spec. */
struct rp_compiled;

/** Compile a finished config with `stream_version: 2`. Config and corpus must outlive the result.
 * Errors: -RP_E_CONFIG (with the line of the config), -RP_E_EMPTY, -ENOMEM, or -errno of a file of
 * `without`. */
RP_MUST_CHECK int rp_compiled_open(struct rp_compiled **compiled_out,
                                   const struct rp_config *config, const struct rp_corpus *corpus,
                                   struct rp_error *error);
/** Its spec: every array has the order of the config. */
const struct rp_stream_spec *rp_compiled_spec(const struct rp_compiled *compiled);
void rp_compiled_close(struct rp_compiled *compiled); /* NULL is fine */

#endif
