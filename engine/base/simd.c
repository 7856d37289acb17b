/* SPDX-License-Identifier: Apache-2.0 */
/* simd.c — an instruction may be used if the processor has it (CPUID) and if the kernel saves its
 * registers when it switches threads (XCR0). */
#include "base/simd.h"

#include <stdint.h>

unsigned rp_simd_found;

#ifdef __x86_64__
#include <cpuid.h>

#define XCR0_AVX 0x06u    /* xmm and ymm */
#define XCR0_AVX512 0xe6u /* and masks, zmm0-15, zmm16-31 */

static uint32_t registers_saved_by_kernel(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

__attribute__((constructor)) static void find_simd(void)
{
    uint32_t eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
        return;
    uint32_t saved = registers_saved_by_kernel();
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        return;
    if ((saved & XCR0_AVX) == XCR0_AVX && (ebx & bit_AVX2))
        rp_simd_found |= RP_SIMD_AVX2;
    if ((saved & XCR0_AVX512) == XCR0_AVX512 && (ebx & bit_AVX512F) && (ebx & bit_AVX512VL))
        rp_simd_found |= RP_SIMD_AVX512VL;
}
#endif
