/* SPDX-License-Identifier: Apache-2.0 */
/* processor_model.h — the table that __builtin_cpu_supports asks, in gcc's and clang's libraries: a
 * test may hide from this program what the processor can. */
#ifndef RP_TESTS_PROCESSOR_MODEL_H
#define RP_TESTS_PROCESSOR_MODEL_H

#if defined(__x86_64__)
extern struct {
    unsigned vendor, type, subtype, features[1];
} __cpu_model;
#define AVX2 (1u << 10)
#define AVX512VL (1u << 20)
#endif

#endif
