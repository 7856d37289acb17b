/* SPDX-License-Identifier: Apache-2.0 */
#include "base/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"

#define SOURCES_MAX 4096u /* as RP_SOURCES_MAX: records of peers may have more */
#define MILLION 1000000u

__extension__ typedef unsigned __int128 wide;

static const char begin[] = "source[", end[] = "].weight";

/* The next weight of a record, which must belong to source `number`. 1, 0 at the end, -1 if it is
 * not. */
static int next_weight(const struct rp_record *record, size_t *at, uint32_t number, uint64_t *value)
{
    struct rp_field field;
    char name[RP_RECORD_NAME_MAX + 1], text[24];
    while (rp_record_next(record, at, &field)) {
        size_t tail = sizeof end - 1;
        bool is_weight = field.name_bytes > tail && !memcmp(field.name, begin, sizeof begin - 1) &&
                         !memcmp(field.name + field.name_bytes - tail, end, tail);
        if (!is_weight)
            continue;
        int length = snprintf(name, sizeof name, "%s%04u%s", begin, number, end);
        bool is_next = number < SOURCES_MAX && field.name_bytes == (uint32_t)length &&
                       !memcmp(field.name, name, field.name_bytes);
        snprintf(text, sizeof text, "%.*s", (int)rp_min_u64(field.value_bytes, 20), field.value);
        return is_next && rp_text_u64(text, value) && *value >= 1 && *value <= UINT32_MAX ? 1 : -1;
    }
    return 0;
}

static int read_all(const struct rp_record *record, struct rp_weight *of, bool is_had,
                    uint32_t *count)
{
    size_t at = 0;
    uint64_t value;
    int found;
    for (*count = 0; (found = next_weight(record, &at, *count, &value)) > 0; ++*count)
        *(is_had ? &of[*count].had : &of[*count].has) = value;
    return found;
}

static bool same_factor(const struct rp_weight *a, const struct rp_weight *b)
{
    return a->had * b->has == b->had * a->has;
}

/* Whether one factor's sources come before another's. */
struct group {
    uint64_t sources, share;
    bool is_one;
};
static bool comes_before(const struct group *a, const struct group *b)
{
    if (a->sources != b->sources)
        return a->sources > b->sources;
    return a->is_one != b->is_one ? a->is_one : a->share > b->share;
}

static struct group group_of(const struct rp_weights *weights, uint32_t first)
{
    const struct rp_weight *one = &weights->of[first];
    struct group group = {.is_one = one->had == one->has};
    for (uint32_t s = first; s < weights->count; s++) {
        bool is_in = same_factor(one, &weights->of[s]);
        group.sources += is_in;
        group.share += is_in ? weights->of[s].had : 0;
    }
    return group;
}

/* Returns false if all weights have one factor. Every group is counted from its first source; from
 * a later one it is smaller. */
static bool choose_kept(struct rp_weights *weights)
{
    struct group best = {0};
    for (uint32_t s = 0; s < weights->count && best.sources < weights->count; s++) {
        struct group group = group_of(weights, s);
        if (!comes_before(&group, &best))
            continue;
        best = group;
        weights->kept = s;
    }
    return best.sources < weights->count;
}

bool rp_weights_open(struct rp_weights *weights, const struct rp_record *had,
                     const struct rp_record *has, uint64_t unit)
{
    uint32_t count_had, count_has;
    *weights = (struct rp_weights){.of = rp_calloc(SOURCES_MAX, sizeof *weights->of),
                                   .unit = unit ? unit : MILLION};
    bool is_known = weights->of && read_all(had, weights->of, true, &count_had) == 0 &&
                    read_all(has, weights->of, false, &count_has) == 0 && count_had == count_has;
    weights->count = is_known ? count_had : 0;
    if (is_known && choose_kept(weights))
        return true;
    rp_weights_close(weights);
    return false;
}

void rp_weights_close(struct rp_weights *weights)
{
    free(weights->of);
    weights->of = NULL;
}

bool rp_weights_is_kept(const struct rp_weights *weights, uint32_t source)
{
    if (!weights->of || source >= weights->count)
        return false;
    const struct rp_weight *one = &weights->of[source];
    return same_factor(one, &weights->of[weights->kept]);
}

void rp_weights_has_text(const struct rp_weights *weights, uint32_t source,
                         char text[RP_WEIGHT_TEXT_BYTES])
{
    uint64_t millionths;
    if (rp_mul_u64(weights->of[source].has, weights->unit, &millionths))
        rp_text_millionths(millionths, text, RP_WEIGHT_TEXT_BYTES);
    else
        snprintf(text, RP_WEIGHT_TEXT_BYTES, "%.9g",
                 (double)weights->of[source].has * (double)weights->unit / MILLION);
}

/* The factor comes from the source that is kept. */
void rp_weights_had_text(const struct rp_weights *weights, uint32_t source,
                         char text[RP_WEIGHT_TEXT_BYTES])
{
    const struct rp_weight *kept = &weights->of[weights->kept];
    wide whole = (wide)weights->of[source].had * kept->has;
    uint64_t times = weights->unit, parts = kept->had;
    uint64_t common = rp_gcd_u64((uint64_t)(whole % parts), parts);
    whole /= common;
    parts /= common;
    common = rp_gcd_u64(times, parts);
    times /= common;
    parts /= common;
    if (parts == 1 && whole <= UINT64_MAX / times)
        rp_text_millionths((uint64_t)whole * times, text, RP_WEIGHT_TEXT_BYTES);
    else
        snprintf(text, RP_WEIGHT_TEXT_BYTES, "about %.9g",
                 (double)whole * (double)times / (double)parts / MILLION);
}
