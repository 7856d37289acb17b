/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/value_type.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/dtype.h"
#include "base/fail.h"

static const struct {
    const char *descr;
    uint32_t dtype, width;
} types[] = {
    {"|u1", RP_DTYPE_U8, 1},  {"|b1", RP_DTYPE_U8, 1},   {"|i1", RP_DTYPE_I8, 1},
    {"<u2", RP_DTYPE_U16, 2}, {"<i2", RP_DTYPE_I16, 2},  {"<f2", RP_DTYPE_F16, 2},
    {"<i4", RP_DTYPE_I32, 4}, {"<f4", RP_DTYPE_F32, 4},  {"<i8", RP_DTYPE_I64, 8},
    {"<f8", RP_DTYPE_F64, 8}, {"<V2", RP_DTYPE_NONE, 2}, {"|V2", RP_DTYPE_NONE, 2},
};

bool rp_value_type(const char *descr, bool bf16, struct rp_side_type *type, uint32_t *width)
{
    size_t i = 0;
    while (i < RP_ARRAY_COUNT(types) && strcmp(descr, types[i].descr) != 0)
        i++;
    if (i == RP_ARRAY_COUNT(types))
        return false;
    *width = types[i].width;
    type->dtype = bf16 && *width == 2 ? (uint32_t)RP_DTYPE_BF16 : types[i].dtype;
    return true;
}

int rp_value_type_repeat(struct rp_side_type *type, uint32_t count, uint32_t width,
                         const char *path, struct rp_error *error)
{
    uint64_t bytes = (uint64_t)count * width;
    if (bytes > RP_SIDE_ENTRY_BYTES)
        return rp_fail(error, -RP_E_FORMAT, "keep fewer or narrower values of a token",
                       "%s: expected at most %u bytes for a token, found %" PRIu64, path,
                       RP_SIDE_ENTRY_BYTES, bytes);
    type->count = count;
    type->bytes = (uint32_t)bytes;
    return 0;
}
