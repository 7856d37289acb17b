/* SPDX-License-Identifier: Apache-2.0 */
/* simd.h — which vector instructions this processor and its kernel offer beyond the baseline of the
 * architecture. One binary holds each hot loop for several of them, and chooses at run time.
 *
 * __builtin_cpu_supports is not used: it calls the compiler's runtime library, and zig's, which
 * builds the wheels, always answers no. */
#ifndef RP_BASE_SIMD_H
#define RP_BASE_SIMD_H

#include <stdbool.h>

enum rp_simd {
    RP_SIMD_AVX2 = 1,
    RP_SIMD_AVX512VL = 2, /* with AVX-512F */
};

/** A set of enum rp_simd. It is found when the program or the library is loaded; until then it is
 *  empty, which is correct everywhere. Only tests write to it. */
extern unsigned rp_simd_found;

static inline bool rp_simd_has(enum rp_simd instructions)
{
    return rp_simd_found & (unsigned)instructions;
}

#endif
