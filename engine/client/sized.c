/* SPDX-License-Identifier: Apache-2.0 */
/* sized.c — no byte beyond the caller's struct_size is read or written. */
#include "client/sized.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"

int rp_sized_check(uint64_t struct_size, size_t required, const char *name, struct rp_error *error)
{
    if (struct_size >= required && struct_size <= RP_STRUCT_SIZE_MAX)
        return 0;
    return rp_fail(error, -RP_E_USAGE,
                   "set struct_size to sizeof the struct before the call, and the rest to 0",
                   "struct %s: struct_size: expected %zu to %u bytes, found %" PRIu64, name,
                   required, RP_STRUCT_SIZE_MAX, struct_size);
}

int rp_sized_read(void *to, size_t known, const void *from, const char *name,
                  struct rp_error *error)
{
    const uint8_t *bytes = from;
    uint64_t struct_size = rp_load_u64(bytes);
    for (uint64_t i = known; i < struct_size; i++)
        if (bytes[i] != 0)
            return rp_fail(error, -RP_E_USAGE,
                           "use a library at least as new as the header that the program was "
                           "compiled with, or leave that field 0",
                           "struct %s: this library (%s) knows %zu bytes of it, and byte %" PRIu64
                           " of the %" PRIu64
                           " that were given is not 0: a field that this library "
                           "does not know",
                           name, RP_VERSION, known, i, struct_size);
    memset(to, 0, known);
    memcpy(to, from, rp_min_u64(known, struct_size));
    return 0;
}

void rp_sized_write(void *to, const void *from, size_t known)
{
    const size_t head = sizeof(uint64_t); /* struct_size itself */
    uint64_t struct_size = rp_load_u64(to);
    uint64_t end = rp_min_u64(known, struct_size);
    memcpy((uint8_t *)to + head, (const uint8_t *)from + head, end - head);
    if (struct_size > known)
        memset((uint8_t *)to + known, 0, struct_size - known);
}
