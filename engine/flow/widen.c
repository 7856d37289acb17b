/* SPDX-License-Identifier: Apache-2.0 */
/* widen.c — instantiates the kernels of widen_kernel.inc, and chooses the one for this processor.
 *
 * Plain loops that compilers turn into SIMD on every machine (-O3, engine/CMakeLists.txt): once for
 * the baseline of the architecture (SSE2, NEON), and once for AVX2. Vectors of 512 bits gained a
 * tenth with one compiler and lost tenfold with another; non-temporal stores were no faster. Cache
 * misses dominate, because documents are scattered in memory, so the next ones are prefetched
 * early. */
#include "flow/widen.h"

#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "base/fail.h"
#include "base/simd.h"

#define SELECT_MAX(a, b) (((b) & (vector)((b) > (a))) | ((a) & ~(vector)((b) > (a))))

#define KERNEL_TARGET
#define KERNEL_VECTOR_BYTES 16
#define KERNEL_NAME(part) KERNEL_NAME_OF(part, KERNEL_STORED)
#define KERNEL_NAME_OF(part, stored) KERNEL_JOIN(part, stored)
#define KERNEL_JOIN(part, stored) part##_##stored
#define KERNEL_STORED uint8_t
#define KERNEL_MAX SELECT_MAX
#include "flow/widen_kernel.inc"
#define KERNEL_STORED uint16_t
#define KERNEL_MAX SELECT_MAX
#include "flow/widen_kernel.inc"
#define KERNEL_STORED uint32_t
#define KERNEL_MAX SELECT_MAX
#include "flow/widen_kernel.inc"
#define KERNEL_STORED uint64_t
#define KERNEL_MAX SELECT_MAX
#include "flow/widen_kernel.inc"
#undef KERNEL_TARGET
#undef KERNEL_VECTOR_BYTES
#undef KERNEL_JOIN

typedef uint64_t rp_widen_kernel(const struct rp_widen_target *to, enum rp_dtype ids,
                                 const uint8_t *source, size_t n, uintptr_t ahead);

/* by stored width: 1, 2, 4, 8 bytes */
static rp_widen_kernel *const kernels[] = {fragment_uint8_t, fragment_uint16_t, fragment_uint32_t,
                                           fragment_uint64_t};

#ifdef __x86_64__
#define KERNEL_TARGET __attribute__((target("avx2")))
#define KERNEL_VECTOR_BYTES 32
#define KERNEL_JOIN(part, stored) part##_avx2_##stored
#define KERNEL_STORED uint8_t
#define KERNEL_MAX(a, b) (vector) _mm256_max_epu8((__m256i)(a), (__m256i)(b))
#include "flow/widen_kernel.inc"
#define KERNEL_STORED uint16_t
#define KERNEL_MAX(a, b) (vector) _mm256_max_epu16((__m256i)(a), (__m256i)(b))
#include "flow/widen_kernel.inc"
#define KERNEL_STORED uint32_t
#define KERNEL_MAX(a, b) (vector) _mm256_max_epu32((__m256i)(a), (__m256i)(b))
#include "flow/widen_kernel.inc"
#define KERNEL_STORED uint64_t
#define KERNEL_MAX SELECT_MAX
#include "flow/widen_kernel.inc"

static rp_widen_kernel *const kernels_avx2[] = {fragment_avx2_uint8_t, fragment_avx2_uint16_t,
                                                fragment_avx2_uint32_t, fragment_avx2_uint64_t};
#endif

static rp_widen_kernel *of_width(rp_widen_kernel *const by_width[], uint32_t width)
{
    RP_ASSERT(width == 1 || width == 2 || width == 4 || width == 8);
    return by_width[__builtin_ctz(width)];
}

static uint64_t widen_fragment(rp_widen_kernel *kernel, const struct rp_widen_target *target,
                               enum rp_dtype ids_dtype, const void *source, size_t n,
                               const void *ahead)
{
    RP_DASSERT(n >= 1);
    uint64_t largest = kernel(target, ids_dtype, source, n, (uintptr_t)ahead);
    if (target->labels) {
        size_t ignored = target->labels_shifted ? n - 1 : 0;
        if (ids_dtype == RP_DTYPE_I64)
            ((int64_t *)target->labels)[ignored] = RP_LABEL_IGNORED;
        else
            ((int32_t *)target->labels)[ignored] = RP_LABEL_IGNORED;
    }
    if (target->mask)
        target->mask[n - 1] = 0;
    return largest;
}

uint64_t rp_widen_fragment_baseline(const struct rp_widen_target *target, enum rp_dtype ids_dtype,
                                    const void *source, uint32_t width, size_t n, const void *ahead)
{
    return widen_fragment(of_width(kernels, width), target, ids_dtype, source, n, ahead);
}

uint64_t rp_widen_fragment(const struct rp_widen_target *target, enum rp_dtype ids_dtype,
                           const void *source, uint32_t width, size_t n, const void *ahead)
{
#ifdef __x86_64__
    if (rp_simd_has(RP_SIMD_AVX2))
        return widen_fragment(of_width(kernels_avx2, width), target, ids_dtype, source, n, ahead);
#endif
    return widen_fragment(of_width(kernels, width), target, ids_dtype, source, n, ahead);
}

uint64_t rp_widen(void *ids, enum rp_dtype dtype, const void *source, uint32_t width, size_t n)
{
    const struct rp_widen_target target = {.ids = ids};
    return n ? rp_widen_fragment(&target, dtype, source, width, n, source) : 0;
}

uint64_t rp_widen_token_at(const void *source, uint32_t width, size_t i)
{
    uint64_t token = 0;
    RP_ASSERT(width <= sizeof token);
    memcpy(&token, (const uint8_t *)source + i * width, width); /* little-endian */
    return token;
}

#define DEFINE_FILLS(dtype)                                                                        \
    static void fill_##dtype(dtype *target, dtype value, size_t n)                                 \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            target[i] = value;                                                                     \
    }                                                                                              \
    static void count_##dtype(dtype *target, dtype first, size_t n)                                \
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

void rp_widen_fill(void *target, enum rp_dtype dtype, int64_t value, size_t n)
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
