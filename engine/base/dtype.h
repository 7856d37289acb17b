/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h — the widths of the numbers in a batch. */
#ifndef RP_BASE_DTYPE_H
#define RP_BASE_DTYPE_H

#include <stdint.h>

#include "ringpack/batch.h"

/** Bytes of one number; 0: not a number. */
static inline uint64_t rp_dtype_bytes(uint32_t dtype)
{
    switch (dtype) {
    case RP_DTYPE_U8:
    case RP_DTYPE_I8:
        return 1;
    case RP_DTYPE_U16:
    case RP_DTYPE_I16:
    case RP_DTYPE_F16:
    case RP_DTYPE_BF16:
        return 2;
    case RP_DTYPE_I64:
    case RP_DTYPE_F64:
        return 8;
    case RP_DTYPE_I32:
    case RP_DTYPE_F32:
        return 4;
    default:
        return 0;
    }
}

#endif
