/* SPDX-License-Identifier: Apache-2.0 */
/* scan — one loop per token width over groups of a fixed size: the compiler turns "any EOS in the group?"
 * and "largest of the group" into vector instructions, and only a group with an EOS is looked at token by
 * token, without a branch. The document table thus costs little where documents are longer than a group.
 *
 * The entry of a document table is the first token of a document: one behind a trailing EOS, or a leading
 * EOS itself. Entry 0 is always 0, and no other is, so that an EOS at the very start makes no empty document. */
#include "corpus/scan.h"

#include <string.h>

#define GROUP 64

#define SCAN_FUNCTION(name, type)                                                                    \
    static size_t name(const void *data, size_t count, type eos, uint64_t base, uint64_t *starts,    \
                       uint64_t *token_max)                                                          \
    {                                                                                                \
        const type *tokens = data;                                                                   \
        size_t found = 0, at = 0;                                                                    \
        type largest = 0;                                                                            \
        for (; at + GROUP <= count; at += GROUP) {                                                   \
            const type *group = tokens + at;                                                         \
            type hit = 0;                                                                            \
            for (size_t i = 0; i < GROUP; i++) {                                                     \
                hit |= (type)(group[i] == eos);                                                      \
                largest = group[i] > largest ? group[i] : largest;                                   \
            }                                                                                        \
            if (!hit)                                                                                \
                continue;                                                                            \
            for (size_t i = 0; i < GROUP; i++) {                                                     \
                starts[found] = base + at + i;                                                       \
                found += group[i] == eos;                                                            \
            }                                                                                        \
        }                                                                                            \
        for (; at < count; at++) {                                                                   \
            largest = tokens[at] > largest ? tokens[at] : largest;                                   \
            starts[found] = base + at;                                                               \
            found += tokens[at] == eos;                                                              \
        }                                                                                            \
        *token_max = largest;                                                                        \
        return found;                                                                                \
    }

SCAN_FUNCTION(scan_u8, uint8_t)
SCAN_FUNCTION(scan_u16, uint16_t)
SCAN_FUNCTION(scan_u32, uint32_t)
SCAN_FUNCTION(scan_u64, uint64_t)

#define MAX_FUNCTION(name, type)                                                                     \
    static uint64_t name(const void *data, size_t count)                                             \
    {                                                                                                \
        const type *tokens = data;                                                                   \
        type largest = 0;                                                                            \
        size_t at = 0;                                                                               \
        for (; at + GROUP <= count; at += GROUP)                                                     \
            for (size_t i = 0; i < GROUP; i++)                                                       \
                largest = tokens[at + i] > largest ? tokens[at + i] : largest;                       \
        for (; at < count; at++)                                                                     \
            largest = tokens[at] > largest ? tokens[at] : largest;                                   \
        return largest;                                                                              \
    }

MAX_FUNCTION(max_u8, uint8_t)
MAX_FUNCTION(max_u16, uint16_t)
MAX_FUNCTION(max_u32, uint32_t)
MAX_FUNCTION(max_u64, uint64_t)

void rp_scan_begin(struct rp_scan *scan, enum rp_token_type type, int64_t eos, bool eos_leads)
{
    *scan = (struct rp_scan){.type = type, .split = eos != RP_EOS_NONE, .eos_leads = eos_leads, .eos = eos};
}

static uint64_t largest_of(enum rp_token_type type, const void *tokens, size_t count)
{
    switch (rp_token_width(type)) {
    case 1:
        return max_u8(tokens, count);
    case 2:
        return max_u16(tokens, count);
    case 4:
        return max_u32(tokens, count);
    default:
        return max_u64(tokens, count);
    }
}

static size_t eos_positions(const struct rp_scan *scan, const void *tokens, size_t count,
                            uint64_t *positions, uint64_t *largest)
{
    switch (rp_token_width(scan->type)) {
    case 1:
        return scan_u8(tokens, count, (uint8_t)scan->eos, scan->position, positions, largest);
    case 2:
        return scan_u16(tokens, count, (uint16_t)scan->eos, scan->position, positions, largest);
    case 4:
        return scan_u32(tokens, count, (uint32_t)scan->eos, scan->position, positions, largest);
    default:
        return scan_u64(tokens, count, (uint64_t)scan->eos, scan->position, positions, largest);
    }
}

size_t rp_scan_add(struct rp_scan *scan, const void *tokens, size_t count, uint64_t *starts)
{
    size_t written = 0, found = 0;
    uint64_t largest = 0;
    if (scan->split) {
        bool first = scan->position == 0;
        starts[0] = 0;
        uint64_t *positions = starts + (first ? 1 : 0);
        found = eos_positions(scan, tokens, count, positions, &largest);
        if (first && count > 0)
            written = 1;
        if (!scan->eos_leads)
            for (size_t i = 0; i < found; i++)
                positions[i]++;
        else if (found > 0 && positions[0] == 0) /* the first document: its entry is there */
            memmove(positions, positions + 1, --found * sizeof *positions);
        written += found;
    } else {
        largest = largest_of(scan->type, tokens, count);
    }
    scan->position += count;
    if (written > 0)
        scan->last_start = starts[written - 1];
    scan->token_max = largest > scan->token_max ? largest : scan->token_max;
    return written;
}

size_t rp_scan_finish(struct rp_scan *scan, uint64_t *starts)
{
    /* With trailing EOS the table may be complete; with a leading one every document is still open. */
    if (!scan->split || scan->position == 0 || (!scan->eos_leads && scan->last_start == scan->position))
        return 0;
    starts[0] = scan->position;
    return 1;
}
