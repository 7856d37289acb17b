/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/revalidation.h"

#include "base/file.h"
#include "flow/files.h"

/* After a check has failed the stream ends, so there is no other one: the failure is the answer. */
void rp_revalidation_answer(struct rp_revalidation *r, struct rp_files *files, uint64_t retired,
                            int wake_fd)
{
    uint64_t requested = rp_a64_load_acquire(&r->requested);
    bool has_failed = rp_a32_load_relaxed(&r->has_failed);
    if (!has_failed && rp_files_revalidate(files, retired, &r->error) < 0)
        rp_a32_store_release(&r->has_failed, 1); /* PAIRS revalidation-failed */
    if (requested == rp_a64_load_relaxed(&r->answered))
        return;
    rp_a64_store_release(&r->answered, requested); /* PAIRS revalidated */
    rp_fd_wake(wake_fd);
}
