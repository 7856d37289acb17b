/* SPDX-License-Identifier: Apache-2.0 */
/* locate.h — finds the file of a document, and its row there. */
#ifndef RP_SERVER_LOCATE_H
#define RP_SERVER_LOCATE_H

#include "server/engine.h"

/** `body` is an array of struct rp_provenance. *text_out gets a line for each: the row, a space and
 * the file, with each backslash doubled and each newline written as `\n`. The caller frees it. */
RP_MUST_CHECK int rp_engine_locate(const struct rp_stream *stream, const uint8_t *body,
                                   uint64_t body_bytes, char **text_out, struct rp_error *error);

#endif
