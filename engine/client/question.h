/* SPDX-License-Identifier: Apache-2.0 */
/* question.h — requests of our own programs. Status is requested, and the answer taken later: for
 * programs that watch several engines, and must not wait for one that is stopped (SIGSTOP) or very
 * busy.
 *
 * One connection has one question. Send only one request to an engine that does not answer:
 * repeated ones fill the queue of its socket, and then trainers cannot attach. */
#ifndef RP_CLIENT_QUESTION_H
#define RP_CLIENT_QUESTION_H

#include <stdint.h>

#include "base/fail.h"

#define RP_QUESTION_PATIENCE_MS 10000 /* an engine that answers no status for so long is silent */

/** Send the request. Returns the connection, which the caller closes; errors as of rp_run_stat.
 * Waits at most patience_ns for room in the queue of an engine that does not accept. */
RP_MUST_CHECK int rp_question_stat(const char *run_dir, const char *run, uint64_t patience_ns,
                                   struct rp_error *error);
/** The answer as JSON, which the caller frees. -RP_E_TIMEOUT: it is not there after wait_ms, and
 * may be taken later. After any other error no answer will come. */
RP_MUST_CHECK int rp_question_answer(int fd, int wait_ms, char **json_out, struct rp_error *error);

/** Set weights from a step on; `request` is JSON (shm/layout.h). The caller frees *text_out, the
 * answer. After an error of the connection the run journal has the weights or not. */
RP_MUST_CHECK int rp_question_weights(const char *run_dir, const char *run, const char *request,
                                      char **text_out, struct rp_error *error);

#endif
