/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/readers/samples.h"

#include <inttypes.h>

#include "base/bits.h"

#define OFFSETS_AT 4u

static uint64_t table_end(const struct rp_probe *probe)
{
    return OFFSETS_AT + 4 * ((uint64_t)rp_load_u32(probe->head) + 1);
}

bool rp_samples_are_in(const struct rp_probe *probe)
{
    uint64_t first = rp_load_u32(probe->head + OFFSETS_AT);
    return probe->bytes >= 8 && first >= table_end(probe) && first <= probe->bytes;
}

int rp_samples_begin(struct rp_samples *samples, const struct rp_probe *probe,
                     struct rp_error *error)
{
    samples->probe = probe;
    samples->count = rp_load_u32(probe->head);
    samples->table_end = table_end(probe);
    samples->next = 0;
    samples->begin = rp_load_u32(probe->head + OFFSETS_AT);
    if (rp_samples_are_in(probe) && (samples->count > 0 || samples->begin == probe->bytes))
        return 0;
    return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                   "%s: %" PRIu64 " samples from byte %" PRIu64
                   " on: expected them after their table and inside the file, which has %" PRIu64
                   " bytes",
                   probe->path, samples->count, samples->begin, probe->bytes);
}

static int fail_end(const struct rp_samples *samples, uint64_t end, bool is_last,
                    struct rp_error *error)
{
    const struct rp_probe *probe = samples->probe;
    uint64_t least = is_last ? probe->bytes : samples->begin;
    return rp_fail(error, -RP_E_CORRUPT,
                   "the file was cut short or overwritten: copy or write it again",
                   "%s: end of sample %" PRIu64 ": expected a byte from %" PRIu64 " to %" PRIu64
                   ", found %" PRIu64,
                   probe->path, samples->next, least, probe->bytes, end);
}

int rp_samples_next(struct rp_samples *samples, uint64_t *begin, uint64_t *end,
                    struct rp_error *error)
{
    const struct rp_probe *probe = samples->probe;
    uint64_t place = samples->next % RP_SAMPLES_AT_ONCE, left = samples->count - samples->next;
    RP_ASSERT(left > 0);
    if (place == 0) {
        size_t bytes = 4 * (size_t)rp_min_u64(RP_SAMPLES_AT_ONCE, left);
        int code = rp_file_read_at(probe->fd, probe->path, samples->ends, bytes,
                                   OFFSETS_AT + 4 * (samples->next + 1), error);
        if (code < 0)
            return code;
    }
    *begin = samples->begin;
    *end = rp_load_u32(&samples->ends[place]);
    bool fits = left == 1 ? *end == probe->bytes : *end <= probe->bytes;
    if (*end < *begin || !fits)
        return fail_end(samples, *end, left == 1, error);
    samples->begin = *end;
    samples->next++;
    return 0;
}
