/* SPDX-License-Identifier: Apache-2.0 */
/* stream_without.h — the files of `without`: numbers of documents that a stage takes out. For
 * stream_spec.c. */
#ifndef RP_STREAM_WITHOUT_H
#define RP_STREAM_WITHOUT_H

#include "base/fail.h"
#include "plan/v2/spec.h"

/** Read a file with one document number on a line, in any order; empty lines, and those that begin
 * with #, are left out. Numbers are those after the range of the source, which has `documents`.
 * Errors: -errno, -ENOMEM, -RP_E_CONFIG with file and line. */
RP_MUST_CHECK int rp_without_read(struct rp_without *without, const char *path, uint64_t documents,
                                  struct rp_error *error);
void rp_without_free(struct rp_without *without);

#endif
