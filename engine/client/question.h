/* SPDX-License-Identifier: Apache-2.0 */
/* question.h — ask an engine for its status, and take the answer later: for programs that watch
 * several engines, and must not wait for one that is stopped (SIGSTOP) or very busy.
 *
 * One connection has one question. An engine that does not answer is asked once: whoever asks it
 * again and again fills the queue of its socket, and then trainers cannot attach. */
#ifndef RP_CLIENT_QUESTION_H
#define RP_CLIENT_QUESTION_H

#include <stdint.h>

#include "base/fail.h"

#define RP_QUESTION_PATIENCE_MS 10000 /* an engine that answers no status for so long is silent */

/** Ask the engine of a run. Returns the connection, which the caller closes; errors are those of
 * rp_run_stat. Waits at most patience_ns for room in the queue of an engine that accepts nobody. */
RP_MUST_CHECK int rp_question_stat(const char *run_dir, const char *run, uint64_t patience_ns,
                                   struct rp_error *error);
/** The answer as JSON, which the caller frees. -RP_E_TIMEOUT: it is not there after wait_ms, and
 * may be taken later. After any other error no answer will come. */
RP_MUST_CHECK int rp_question_answer(int fd, int wait_ms, char **json_out, struct rp_error *error);

#endif
