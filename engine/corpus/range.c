/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/range.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/text.h"
#include "corpus/corpus_struct.h"

__extension__ typedef unsigned __int128 wide; /* documents times millionths of a percent */

#define PERCENT 1000000u /* millionths */
#define WORD_RANGE 3u /* tag of a range among the words of a fingerprint, STREAM.md section 1.2 */

/* With has_decimals: 10^6 times a number with at most six decimals. Without: a whole number. */
static bool parse_bound(const char *text, size_t length, bool has_decimals, uint64_t *value)
{
    char copy[40];
    const char *point = memchr(text, '.', length);
    size_t whole = point ? (size_t)(point - text) : length;
    size_t decimals = point ? length - whole - 1 : 0;
    if (length == 0 || length >= sizeof copy || decimals > 6 || (point && !has_decimals))
        return false;
    int used = snprintf(copy, sizeof copy, "%.*s%.*s", (int)whole, text, (int)decimals,
                        point ? point + 1 : "");
    for (size_t i = decimals; has_decimals && i < 6 && used + 1 < (int)sizeof copy; i++)
        used += snprintf(copy + used, sizeof copy - (size_t)used, "0");
    return strspn(copy, "0123456789") == (size_t)used && rp_text_u64(copy, value);
}

bool rp_range_parse(const char *text, struct rp_document_range *range)
{
    const char *dash = strchr(text, '-');
    size_t length = strlen(text);
    *range = (struct rp_document_range){.is_percent = length > 0 && text[length - 1] == '%'};
    if (!dash)
        return false;
    size_t first = (size_t)(dash - text), end = length - first - 1;
    end -= range->is_percent && end > 0;
    first -= first > 0 && text[first - 1] == '%' && range->is_percent;
    range->is_open = dash[1] == '\0';
    if (!parse_bound(text, first, range->is_percent, &range->first))
        return false;
    return range->is_open || (parse_bound(dash + 1, end, range->is_percent, &range->end) &&
                              range->first < range->end &&
                              (!range->is_percent || range->end <= 100 * (uint64_t)PERCENT));
}

static uint64_t bound_of(const struct rp_document_range *range, uint64_t bound, uint64_t documents)
{
    return range->is_percent ? (uint64_t)((wide)documents * bound / (100 * (wide)PERCENT)) : bound;
}

/* Damaged entries count 0 here: the plan reports the first of them. The range is not set yet, so
 * rp_source_length counts all documents. */
static uint64_t tokens_of(const struct rp_source *source, uint64_t first, uint64_t end)
{
    uint64_t sum = 0;
    for (uint64_t at = first; at < end;) {
        const struct rp_index_segment *segment = rp_source_segment(source, at);
        uint64_t segment_end = segment->first_document + segment->shape.table.documents;
        uint64_t last = rp_min_u64(segment_end, end);
        if (segment->first_document == at && segment_end == last) {
            sum += segment->tokens;
        } else {
            for (uint64_t d = at; d < last; d++) {
                uint64_t length = rp_source_length(source, d);
                sum += length == UINT64_MAX ? 0 : length;
            }
        }
        at = last;
    }
    return sum;
}

static struct rp_hash128 range_hash(struct rp_hash128 whole, uint64_t first, uint64_t count)
{
    const struct {
        uint64_t word;
        struct rp_hash128 whole;
        uint64_t first, count;
    } words = {WORD_RANGE, whole, first, count};
    RP_STATIC_ASSERT(sizeof words == 40, "STREAM.md section 1.2");
    return rp_hash128(&words, sizeof words);
}

void rp_range_fingerprint(struct rp_fingerprint *fingerprint, uint64_t first, uint64_t count)
{
    fingerprint->sampled = range_hash(fingerprint->sampled, first, count);
    if (rp_hash128_is_known(fingerprint->full))
        fingerprint->full = range_hash(fingerprint->full, first, count);
}

int rp_source_take_range(struct rp_source *source, const char *text, struct rp_error *error)
{
    struct rp_document_range range;
    source->is_open = true;
    if (!text)
        return 0;
    bool is_range = rp_range_parse(text, &range);
    uint64_t all = source->documents;
    uint64_t first = is_range ? bound_of(&range, range.first, all) : 0;
    uint64_t end = is_range && !range.is_open ? bound_of(&range, range.end, all) : all;
    if (!is_range || end > all || first >= end)
        return rp_fail(error, -RP_E_CONFIG, "expected " RP_RANGE_WORDS,
                       "documents: `%.60s` of the %" PRIu64 " documents of the source has %s", text,
                       all, is_range && end > all ? "documents that do not exist" : "no document");
    source->is_open = range.is_open && !range.is_percent;
    source->is_percent = range.is_percent;
    if (first == 0 && end == all)
        return 0;
    source->tokens = tokens_of(source, first, end);
    source->before_range = first;
    source->documents = end - first;
    rp_range_fingerprint(&source->fingerprint, first, source->documents);
    return source->tokens > 0 ? 0
                              : rp_fail(error, -RP_E_EMPTY, "take more of its documents",
                                        "documents: `%.60s`: these documents have no token", text);
}
