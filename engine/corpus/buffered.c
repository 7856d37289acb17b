/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/buffered.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/file.h"

#define BUFFER_BYTES (1u << 20)

int rp_buffered_view(struct rp_buffered *file, uint64_t first, uint64_t count, const uint8_t **out,
                     struct rp_error *error)
{
    static const uint8_t nothing[1];
    RP_ASSERT(count == 0 || rp_range_inside(first, count, file->file_bytes));
    bool is_there = first >= file->begin && first + count <= file->end;
    *out = nothing;
    if (count > 0 && is_there)
        *out = file->bytes + (first - file->begin);
    if (count == 0 || is_there)
        return 0;
    uint64_t wanted = rp_min_u64(rp_max_u64(count, BUFFER_BYTES), file->file_bytes - first);
    if (wanted > file->capacity) {
        free(file->bytes);
        file->bytes = malloc((size_t)wanted);
        file->capacity = file->bytes ? wanted : 0;
    }
    file->begin = file->end = 0;
    *out = file->bytes;
    if (!file->bytes)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for %" PRIu64 " bytes of it",
                       file->path, count);
    int code = rp_file_read_at(file->fd, file->path, file->bytes, (size_t)wanted, first, error);
    if (code == 0) {
        file->begin = first;
        file->end = first + wanted;
    }
    return code;
}

void rp_buffered_release(struct rp_buffered *file)
{
    free(file->bytes);
    *file = (struct rp_buffered){.fd = -1};
}
