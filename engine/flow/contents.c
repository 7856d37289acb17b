/* SPDX-License-Identifier: Apache-2.0 */
/* contents.c — a sorted array of runs. */
#include "flow/contents.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/mem.h"

struct rp_contents {
    struct rp_content_run *runs;
    size_t count, capacity;
    const uint8_t *bytes; /* borrowed */
    size_t size;
};

struct rp_contents *rp_contents_new(const void *bytes, size_t size)
{
    struct rp_contents *contents = calloc(1, sizeof *contents);
    if (contents)
        *contents = (struct rp_contents){.bytes = bytes, .size = size};
    return contents;
}

void rp_contents_clear(struct rp_contents *contents)
{
    free(contents->runs);
    *contents = (struct rp_contents){0};
}

void rp_contents_free(struct rp_contents *contents)
{
    if (!contents)
        return;
    rp_contents_clear(contents);
    free(contents);
}

static int make_room(struct rp_contents *contents)
{
    if (!RP_GROW(contents->runs, contents->capacity, contents->count + 1))
        return -ENOMEM;
    return 0;
}

int rp_contents_add(struct rp_contents *contents, uint64_t row, uint32_t offset, uint32_t count,
                    uint32_t width, const void *tokens)
{
    if (count == 0 || (width != 1 && width != 2 && width != 4 && width != 8) ||
        offset + count < offset)
        return -RP_E_CORRUPT;
    if (contents->count) {
        const struct rp_content_run *last = &contents->runs[contents->count - 1];
        if (row < last->row || (row == last->row && offset < last->offset + last->count))
            return -RP_E_CORRUPT;
    }
    /* difference of addresses: tokens in front of the bytes wrap around, and so are outside */
    uint64_t at = (uint64_t)((uintptr_t)tokens - (uintptr_t)contents->bytes);
    if (!rp_range_inside(at, (uint64_t)count * width, contents->size))
        return -RP_E_CORRUPT;
    if (make_room(contents) < 0)
        return -ENOMEM;
    contents->runs[contents->count++] = (struct rp_content_run){
        .row = row, .byte_offset = at, .offset = offset, .count = count, .width = width};
    return 0;
}

const struct rp_content_run *rp_contents_find(const struct rp_contents *contents, uint64_t row,
                                              uint32_t offset, uint32_t count)
{
    if (contents->count == 0 || row > contents->runs[contents->count - 1].row)
        return NULL; /* the usual answer, once the stream has passed the rows of the checkpoint */
    /* the last run at or before (row, offset) */
    size_t low = 0, high = contents->count;
    const struct rp_content_run *runs = contents->runs;
    RP_PARTITION(low, high, middle,
                 runs[middle].row < row ||
                     (runs[middle].row == row && runs[middle].offset <= offset))
    if (low == 0)
        return NULL;
    const struct rp_content_run *run = &contents->runs[low - 1];
    bool inside = run->row == row && offset - run->offset <= run->count &&
                  count <= run->count - (offset - run->offset);
    return inside ? run : NULL;
}

const uint8_t *rp_contents_bytes(const struct rp_contents *contents, uint64_t *bytes_out)
{
    *bytes_out = contents->size;
    return contents->bytes;
}
