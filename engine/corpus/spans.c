/* SPDX-License-Identifier: Apache-2.0 */
/* Every entry is copied before it is checked, so that the checked value is used, whoever writes to
 * the mapping. */
#include "corpus/spans.h"

#include <string.h>

#include "base/bits.h"

#define DAMAGED_ENDS "its entry in the table of spans is damaged"
#define DAMAGED_SPAN "a span of it is damaged"

static struct rp_span span_at(const struct rp_spans *spans, uint64_t number)
{
    struct rp_span span;
    memcpy(&span, &spans->table[number], sizeof span);
    return span;
}

/* The first span, of those from `first` to `end` - 1, that ends after `token`. */
static uint64_t find_span(const struct rp_spans *spans, uint64_t first, uint64_t end,
                          uint64_t token)
{
    RP_PARTITION(first, end, middle, span_at(spans, middle).end <= token)
    return first;
}

const char *rp_spans_cut(const struct rp_spans *spans, const struct rp_part *part,
                         struct rp_span *out, uint32_t *count_out)
{
    RP_ASSERT(part->document < spans->documents);
    RP_ASSERT(rp_range_inside(part->first, part->tokens, part->length));
    uint64_t first, end, last = part->first + part->tokens, previous_end = 0;
    uint32_t count = 0;
    memcpy(&first, &spans->ends[part->document], sizeof first);
    memcpy(&end, &spans->ends[part->document + 1], sizeof end);
    if (first > end || end > spans->count)
        return DAMAGED_ENDS;
    uint64_t i = part->tokens > 0 ? find_span(spans, first, end, part->first) : end;
    for (; i < end; i++) {
        struct rp_span span = span_at(spans, i);
        if (span.begin <= previous_end || span.begin >= span.end || span.end > part->length ||
            span.end <= part->first)
            return DAMAGED_SPAN;
        if (span.begin >= last)
            break;
        previous_end = span.end;
        uint64_t begin = rp_max_u64(span.begin, part->first) - part->first;
        RP_ASSERT(count < rp_spans_max(part->tokens));
        out[count++] = (struct rp_span){(uint32_t)begin,
                                        (uint32_t)(rp_min_u64(span.end, last) - part->first)};
    }
    *count_out = count;
    return NULL;
}

int rp_spans_overlap(const struct rp_spans *spans, const struct rp_part *part)
{
    RP_ASSERT(part->document < spans->documents);
    RP_ASSERT(rp_range_inside(part->first, part->tokens, part->length));
    uint64_t first, end;
    memcpy(&first, &spans->ends[part->document], sizeof first);
    memcpy(&end, &spans->ends[part->document + 1], sizeof end);
    if (first > end || end > spans->count)
        return -1;
    uint64_t i = part->tokens > 0 ? find_span(spans, first, end, part->first) : end;
    if (i == end)
        return 0;
    struct rp_span span = span_at(spans, i);
    if (span.begin == 0 || span.begin >= span.end || span.end > part->length ||
        span.end <= part->first)
        return -1;
    return span.begin < part->first + part->tokens;
}
