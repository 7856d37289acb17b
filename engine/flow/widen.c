/* SPDX-License-Identifier: Apache-2.0 */
/* widen — plain loops over one (stored type, dtype) pair each, which compilers turn into SIMD on
 * every machine: 8-11 GB/s in for u16 to i32 on one core, near memcpy. Compiled with -O3
 * (engine/CMakeLists.txt), and for AVX2 beside the baseline where the machine can
 * choose at load time. */
#include "flow/widen.h"

#include <string.h>

#include "base/fail.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define RP_SIMD_CLONES __attribute__((target_clones("default", "avx2")))
#else
#define RP_SIMD_CLONES
#endif

/* memcpy loads: tokens stand at any address. */
#define DEFINE_WIDEN(name, stored, dtype)                                                          \
    RP_SIMD_CLONES static uint64_t name(dtype *restrict target, const uint8_t *restrict source,    \
                                        size_t n)                                                  \
    {                                                                                              \
        stored largest = 0;                                                                        \
        for (size_t i = 0; i < n; i++) {                                                           \
            stored token;                                                                          \
            memcpy(&token, source + i * sizeof token, sizeof token);                               \
            target[i] = (dtype)token;                                                              \
            largest = token > largest ? token : largest;                                           \
        }                                                                                          \
        return largest;                                                                            \
    }

#define DEFINE_WIDENS(dtype)                                                                       \
    DEFINE_WIDEN(widen_u8_##dtype, uint8_t, dtype)                                                 \
    DEFINE_WIDEN(widen_u16_##dtype, uint16_t, dtype)                                               \
    DEFINE_WIDEN(widen_u32_##dtype, uint32_t, dtype)                                               \
    DEFINE_WIDEN(widen_u64_##dtype, uint64_t, dtype)                                               \
    static uint64_t widen_##dtype(void *target, const void *source, uint32_t width, size_t n)      \
    {                                                                                              \
        switch (width) {                                                                           \
        case 1:                                                                                    \
            return widen_u8_##dtype(target, source, n);                                            \
        case 2:                                                                                    \
            return widen_u16_##dtype(target, source, n);                                           \
        case 4:                                                                                    \
            return widen_u32_##dtype(target, source, n);                                           \
        default:                                                                                   \
            RP_ASSERT(width == 8);                                                                 \
            return widen_u64_##dtype(target, source, n);                                           \
        }                                                                                          \
    }

DEFINE_WIDENS(uint16_t)
DEFINE_WIDENS(int32_t)
DEFINE_WIDENS(int64_t)

uint64_t rp_widen(void *target, enum rp_dtype dtype, const void *source, uint32_t width, size_t n)
{
    switch (dtype) {
    case RP_DTYPE_U16:
        return widen_uint16_t(target, source, width, n);
    case RP_DTYPE_I32:
        return widen_int32_t(target, source, width, n);
    default:
        RP_ASSERT(dtype == RP_DTYPE_I64);
        return widen_int64_t(target, source, width, n);
    }
}

uint64_t rp_token_at(const void *source, uint32_t width, size_t i)
{
    uint64_t token = 0;
    RP_ASSERT(width <= sizeof token);
    memcpy(&token, (const uint8_t *)source + i * width, width); /* little-endian */
    return token;
}

#define DEFINE_FILLS(dtype)                                                                        \
    RP_SIMD_CLONES static void fill_##dtype(dtype *target, dtype value, size_t n)                  \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            target[i] = value;                                                                     \
    }                                                                                              \
    RP_SIMD_CLONES static void count_##dtype(dtype *target, dtype first, size_t n)                 \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            target[i] = (dtype)(first + (dtype)i);                                                 \
    }

DEFINE_FILLS(int32_t)
DEFINE_FILLS(int64_t)

void rp_count_up(void *target, enum rp_dtype dtype, int64_t first, size_t n)
{
    if (dtype == RP_DTYPE_I32)
        count_int32_t(target, (int32_t)first, n);
    else
        count_int64_t(target, first, n);
}

void rp_fill_value(void *target, enum rp_dtype dtype, int64_t value, size_t n)
{
    if (dtype == RP_DTYPE_I32) {
        fill_int32_t(target, (int32_t)value, n);
    } else if (dtype == RP_DTYPE_I64) {
        fill_int64_t(target, value, n);
    } else {
        RP_ASSERT(dtype == RP_DTYPE_U16);
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)target)[i] = (uint16_t)value;
    }
}

size_t rp_dtype_bytes(enum rp_dtype dtype)
{
    switch (dtype) {
    case RP_DTYPE_U16:
        return 2;
    case RP_DTYPE_I64:
        return 8;
    default:
        return 4;
    }
}
