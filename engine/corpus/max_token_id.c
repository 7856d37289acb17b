/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/max_token_id.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/stop.h"

int rp_max_token_id_begin(struct rp_max_token_id *largest, const struct rp_probe *probe,
                          enum rp_token_type type, struct rp_error *error)
{
    *largest = (struct rp_max_token_id){.probe = probe, .width = rp_token_width(type)};
    largest->buffer = rp_calloc_aligned(RP_BLOCK_BYTES, RP_DOCUMENT_SCAN_BYTES);
    rp_document_scan_begin(&largest->scan, type, RP_EOS_NONE, false);
    largest->starts = malloc((RP_DOCUMENT_SCAN_BYTES / largest->width + 2) * sizeof(uint64_t));
    return largest->buffer && largest->starts
               ? 0
               : rp_fail(error, -ENOMEM, NULL, "%s: no memory to scan it", probe->path);
}

static int scan_run(struct rp_max_token_id *largest, struct rp_error *error)
{
    int code = 0;
    while (code == 0 && largest->first < largest->end) {
        size_t bytes = (size_t)rp_min_u64(RP_DOCUMENT_SCAN_BYTES, largest->end - largest->first);
        code = rp_file_read_at(largest->probe->fd, largest->probe->path, largest->buffer, bytes,
                               largest->first, error);
        if (code == 0)
            (void)rp_document_scan_add(&largest->scan, largest->buffer, bytes / largest->width,
                                       largest->starts);
        largest->first += bytes;
        if (code == 0)
            code = rp_stop_check(error);
    }
    return code;
}

int rp_max_token_id_add(struct rp_max_token_id *largest, uint64_t byte, uint64_t tokens,
                        struct rp_error *error)
{
    int code = 0;
    if (tokens == 0)
        return 0;
    if (byte != largest->end || largest->end - largest->first >= RP_DOCUMENT_SCAN_BYTES) {
        code = scan_run(largest, error);
        largest->first = byte;
    }
    largest->end = byte + tokens * largest->width;
    return code;
}

int rp_max_token_id_finish(struct rp_max_token_id *largest, uint64_t *token_max,
                           struct rp_error *error)
{
    int code = scan_run(largest, error);
    *token_max = largest->scan.token_max;
    rp_max_token_id_close(largest);
    return code;
}

void rp_max_token_id_close(struct rp_max_token_id *largest)
{
    free(largest->buffer);
    free(largest->starts);
    largest->buffer = NULL;
    largest->starts = NULL;
}
