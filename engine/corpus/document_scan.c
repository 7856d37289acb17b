/* SPDX-License-Identifier: Apache-2.0 */
/* document_scan.c — one loop per token width over groups of a fixed size: the compiler turns "any
 * EOS in the group?" and "largest of the group" into vector instructions, and only a group with an
 * EOS is scanned token by token, without a branch. The document table thus costs little where
 * documents are longer than a group.
 *
 * The entry of a document table is the first token of a document: one after a trailing EOS, or a
 * leading EOS itself. Entry 0 is always 0, and no other is, so that an EOS at the very start makes
 * no empty document. */
#include "corpus/document_scan.h"

#include <string.h>

#include "base/simd.h"

#define GROUP 64

/* The bodies are compiled twice on x86-64: for every such processor, and for those with AVX2, which
 * is chosen when a scan begins. Elsewhere the baseline has vectors enough. */
#define SCAN_BODY(name, type)                                                                      \
    static inline __attribute__((always_inline))                                                   \
    size_t name##_body(const type *tokens, size_t count, type eos, uint64_t base,                  \
                       uint64_t *starts, type *token_max)                                          \
    {                                                                                              \
        size_t found = 0, at = 0;                                                                  \
        type largest = 0;                                                                          \
        for (; at + GROUP <= count; at += GROUP) {                                                 \
            const type *group = tokens + at;                                                       \
            type hit = 0;                                                                          \
            for (size_t i = 0; i < GROUP; i++) {                                                   \
                hit |= (type)(group[i] == eos);                                                    \
                largest = group[i] > largest ? group[i] : largest;                                 \
            }                                                                                      \
            if (!hit)                                                                              \
                continue;                                                                          \
            for (size_t i = 0; i < GROUP; i++) {                                                   \
                starts[found] = base + at + i;                                                     \
                found += group[i] == eos;                                                          \
            }                                                                                      \
        }                                                                                          \
        for (; at < count; at++) {                                                                 \
            largest = tokens[at] > largest ? tokens[at] : largest;                                 \
            starts[found] = base + at;                                                             \
            found += tokens[at] == eos;                                                            \
        }                                                                                          \
        *token_max = largest;                                                                      \
        return found;                                                                              \
    }
#define SCAN_FUNCTION(name, body, type, target)                                                    \
    target static size_t name(const void *tokens, size_t count, uint64_t eos, uint64_t base,       \
                              uint64_t *starts, uint64_t *token_max)                               \
    {                                                                                              \
        type largest;                                                                              \
        size_t found = body(tokens, count, (type)eos, base, starts, &largest);                     \
        *token_max = largest;                                                                      \
        return found;                                                                              \
    }
#define FOR_EVERY_WIDTH(X)                                                                         \
    X(scan_u8, uint8_t) X(scan_u16, uint16_t) X(scan_u32, uint32_t) X(scan_u64, uint64_t)

#define BASELINE(name, type) SCAN_BODY(name, type) SCAN_FUNCTION(name, name##_body, type, )
FOR_EVERY_WIDTH(BASELINE)
#if defined(__x86_64__)
#define WITH_AVX2(name, type)                                                                      \
    SCAN_FUNCTION(name##_avx2, name##_body, type, __attribute__((target("avx2"))))
FOR_EVERY_WIDTH(WITH_AVX2)
#endif

static rp_document_scan_function *choose(enum rp_token_type type)
{
    static rp_document_scan_function *const baseline[9] = {
        [1] = scan_u8, [2] = scan_u16, [4] = scan_u32, [8] = scan_u64};
    uint32_t width = rp_token_width(type);
#if defined(__x86_64__)
    static rp_document_scan_function *const avx2[9] = {
        [1] = scan_u8_avx2, [2] = scan_u16_avx2, [4] = scan_u32_avx2, [8] = scan_u64_avx2};
    if (rp_simd_has(RP_SIMD_AVX2))
        return avx2[width];
#endif
    return baseline[width];
}

void rp_document_scan_begin(struct rp_document_scan *scan, enum rp_token_type type, int64_t eos,
                            bool eos_leads)
{
    *scan = (struct rp_document_scan){.function = choose(type),
                                      .split = eos != RP_EOS_NONE,
                                      .eos_leads = eos_leads,
                                      .eos = (uint64_t)eos};
}

size_t rp_document_scan_add(struct rp_document_scan *scan, const void *tokens, size_t count,
                            uint64_t *starts)
{
    bool first = scan->position == 0;
    starts[0] = 0;
    uint64_t *positions = starts + (first ? 1 : 0);
    uint64_t largest;
    size_t found = scan->function(tokens, count, scan->eos, scan->position, positions, &largest);
    scan->position += count;
    scan->token_max = largest > scan->token_max ? largest : scan->token_max;
    if (!scan->split || count == 0)
        return 0;
    if (!scan->eos_leads)
        for (size_t i = 0; i < found; i++)
            positions[i]++;
    else if (found > 0 && positions[0] == 0) /* the first document: its entry is there */
        memmove(positions, positions + 1, --found * sizeof *positions);
    size_t written = found + (first ? 1 : 0);
    if (written > 0)
        scan->last_start = starts[written - 1];
    return written;
}

size_t rp_document_scan_finish(struct rp_document_scan *scan, uint64_t *starts)
{
    /* With trailing EOS the table may be complete; with a leading one a document is always open. */
    if (!scan->split || scan->position == 0 ||
        (!scan->eos_leads && scan->last_start == scan->position))
        return 0;
    starts[0] = scan->position;
    return 1;
}
