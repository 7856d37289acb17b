/* SPDX-License-Identifier: Apache-2.0 */
/* See looks.h. */
#include "flow/looks.h"

#include "base/file.h"
#include "flow/files.h"

/* After a check has failed the stream ends, so there is no other one: the failure is the answer. */
void rp_looks_answer(struct rp_looks *looks, struct rp_files *files, uint64_t retired, int wake_fd)
{
    uint64_t asked = rp_a64_load_acquire(&looks->asked);
    bool has_failed = rp_a32_load_relaxed(&looks->has_failed);
    if (!has_failed && rp_files_look(files, retired, &looks->error) < 0)
        rp_a32_store_release(&looks->has_failed, 1); /* PAIRS look-failed */
    if (asked == rp_a64_load_relaxed(&looks->answered))
        return;
    rp_a64_store_release(&looks->answered, asked); /* PAIRS look-answer */
    rp_fd_wake(wake_fd);
}
