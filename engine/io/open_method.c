/* SPDX-License-Identifier: Apache-2.0 */
/* open_method — a reader's method, or another one in its place.
 *
 * A ring that works promises nothing of the next one: rings are charged to RLIMIT_MEMLOCK of the
 * user by some kernels (measured on 6.18: 16 KiB for 128 reads), and take a descriptor each; and
 * io_uring may be forbidden while an engine runs. Methods that read files can take each other's
 * place at any time, because their objects are the same descriptors. */
#include "base/defect.h"
#include "io/io.h"

int rp_io_open_method(const struct rp_io_method **method, void **self,
                      const struct rp_io_options *options, struct rp_error *error)
{
    struct rp_error refusal;
    bool gives_way = options->gives_way && *method == &rp_io_method_uring;
    if (!gives_way || RP_DEFECT(insist_on_rings))
        return (*method)->open(self, options, error);
    if (rp_io_method_uring.open(self, options, &refusal) == 0)
        return 0;
    if (options->refusal)
        *options->refusal = refusal;
    *method = &rp_io_method_pread;
    return rp_io_method_pread.open(self, options, error);
}
