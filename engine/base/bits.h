/* SPDX-License-Identifier: Apache-2.0 */
/* bits.h — checked arithmetic, powers of two, and little-endian loads from any address. */
#ifndef RP_BASE_BITS_H
#define RP_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "ringpack's files and shared memory are little-endian; this machine is not"
#endif

/* C11 and C++17 spell it differently, and the headers must compile as both. */
#ifdef __cplusplus
#define RP_STATIC_ASSERT(e, text) static_assert(e, text)
#else
#define RP_STATIC_ASSERT(e, text) _Static_assert(e, text)
#endif

#define RP_ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))

static inline uint64_t rp_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t rp_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
static inline bool rp_is_pow2(uint64_t v)
{
    return v != 0 && (v & (v - 1)) == 0;
}
static inline uint64_t rp_pow2_at_least(uint64_t v)
{
    uint64_t power = 1;
    while (power < v)
        power *= 2;
    return power;
}
/* `alignment` is a power of two. */
static inline uint64_t rp_align_down(uint64_t v, uint64_t alignment)
{
    return v & ~(alignment - 1);
}
static inline uint64_t rp_align_up(uint64_t v, uint64_t alignment)
{
    return (v + alignment - 1) & ~(alignment - 1);
}
static inline uint64_t rp_div_up(uint64_t v, uint64_t divisor)
{
    return v / divisor + (v % divisor != 0);
}
/* The greatest common divisor. */
static inline uint64_t rp_gcd_u64(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}
/* True and *out set, or false if the result does not fit. */
static inline bool rp_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool rp_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
/* Whether [offset, offset + length) is within [0, size), without overflow. */
static inline bool rp_range_inside(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}

static inline uint16_t rp_load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t rp_load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t rp_load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
/* Binary search in a range whose elements before some place satisfy `is_before`, an expression of
 * the variable `middle`. At the end, low and high are that place. */
#define RP_PARTITION(low, high, middle, is_before)                                                 \
    while ((low) < (high)) {                                                                       \
        const __typeof__(low) middle = (low) + ((high) - (low)) / 2;                               \
        if (is_before)                                                                             \
            (low) = middle + 1;                                                                    \
        else                                                                                       \
            (high) = middle;                                                                       \
    }
/* How many entries of an array, whose u64 at `offset` ascends, have at most `most` there. */
static inline uint32_t rp_count_up_to(const void *entries, uint32_t count, size_t entry_bytes,
                                      size_t offset, uint64_t most)
{
    uint32_t low = 0, high = count;
    RP_PARTITION(low, high, middle,
                 rp_load_u64((const char *)entries + middle * entry_bytes + offset) <= most)
    return low;
}
#define RP_COUNT_UP_TO(entries, count, member, most)                                               \
    rp_count_up_to(entries, count, sizeof *(entries), offsetof(__typeof__(*(entries)), member),    \
                   most)
static inline void rp_store_u32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}
static inline void rp_store_u64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

#endif
