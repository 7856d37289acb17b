/* SPDX-License-Identifier: Apache-2.0 */
/* points_stores.c — the compiler's calls before loads and stores under -fsanitize=thread. Loads are
 * of no interest; an atomic operation is done here, in the strongest order. */
#include "points.h"

#define READ(name)                                                                                 \
    void __tsan_##name(const void *address);                                                       \
    void __tsan_##name(const void *address)                                                        \
    {                                                                                              \
        (void)address;                                                                             \
    }
#define WRITE(name)                                                                                \
    void __tsan_##name(void *address);                                                             \
    void __tsan_##name(void *address)                                                              \
    {                                                                                              \
        rp_point_pass_store(RP_HERE, address);                                                     \
    }
#define NOTHING(name)                                                                              \
    void __tsan_##name(void);                                                                      \
    void __tsan_##name(void)                                                                       \
    {                                                                                              \
    }
READ(read1)
READ(read2)
READ(read4)
READ(read8)
READ(read16)
READ(unaligned_read2)
READ(unaligned_read4)
READ(unaligned_read8)
READ(unaligned_read16)
READ(read_range)
READ(func_entry)
WRITE(write1)
WRITE(write2)
WRITE(write4)
WRITE(write8)
WRITE(write16)
WRITE(unaligned_write2)
WRITE(unaligned_write4)
WRITE(unaligned_write8)
WRITE(unaligned_write16)
WRITE(write_range)
NOTHING(init)
NOTHING(func_exit)

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define LOAD(type, bits)                                                                           \
    type __tsan_atomic##bits##_load(const type *at, int order);                                    \
    type __tsan_atomic##bits##_load(const type *at, int order)                                     \
    {                                                                                              \
        (void)order;                                                                               \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                              \
    }
#define STORE(type, bits)                                                                          \
    void __tsan_atomic##bits##_store(type *at, type value, int order);                             \
    void __tsan_atomic##bits##_store(type *at, type value, int order)                              \
    {                                                                                              \
        (void)order;                                                                               \
        rp_point_pass_store(RP_HERE, at);                                                          \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                             \
    }
#define EXCHANGE(type, bits, strength)                                                             \
    int __tsan_atomic##bits##_compare_exchange_##strength(type *at, type *expected, type value,    \
                                                          int order, int failure);                 \
    int __tsan_atomic##bits##_compare_exchange_##strength(type *at, type *expected, type value,    \
                                                          int order, int failure)                  \
    {                                                                                              \
        (void)order, (void)failure;                                                                \
        rp_point_pass_store(RP_HERE, at);                                                          \
        return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,           \
                                           __ATOMIC_SEQ_CST);                                      \
    }
/* As clang calls it. */
#define EXCHANGE_VALUE(type, bits)                                                                 \
    type __tsan_atomic##bits##_compare_exchange_val(type *at, type expected, type value,           \
                                                    int order, int failure);                       \
    type __tsan_atomic##bits##_compare_exchange_val(type *at, type expected, type value,           \
                                                    int order, int failure)                        \
    {                                                                                              \
        (void)order, (void)failure;                                                                \
        rp_point_pass_store(RP_HERE, at);                                                          \
        __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST,                 \
                                    __ATOMIC_SEQ_CST);                                             \
        return expected;                                                                           \
    }
#define SWAP(type, bits)                                                                           \
    type __tsan_atomic##bits##_exchange(type *at, type value, int order);                          \
    type __tsan_atomic##bits##_exchange(type *at, type value, int order)                           \
    {                                                                                              \
        (void)order;                                                                               \
        rp_point_pass_store(RP_HERE, at);                                                          \
        return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                   \
    }
#define MODIFY(type, bits, name)                                                                   \
    type __tsan_atomic##bits##_##name(type *at, type value, int order);                            \
    type __tsan_atomic##bits##_##name(type *at, type value, int order)                             \
    {                                                                                              \
        (void)order;                                                                               \
        rp_point_pass_store(RP_HERE, at);                                                          \
        return __atomic_##name(at, value, __ATOMIC_SEQ_CST);                                       \
    }
#define ALL(type, bits)                                                                            \
    LOAD(type, bits)                                                                               \
    STORE(type, bits)                                                                              \
    EXCHANGE(type, bits, strong)                                                                   \
    EXCHANGE(type, bits, weak)                                                                     \
    EXCHANGE_VALUE(type, bits)                                                                     \
    SWAP(type, bits)                                                                               \
    MODIFY(type, bits, fetch_add)                                                                  \
    MODIFY(type, bits, fetch_sub)                                                                  \
    MODIFY(type, bits, fetch_and)                                                                  \
    MODIFY(type, bits, fetch_or)                                                                   \
    MODIFY(type, bits, fetch_xor)
ALL(uint8_t, 8)
ALL(uint16_t, 16)
ALL(uint32_t, 32)
ALL(uint64_t, 64)
