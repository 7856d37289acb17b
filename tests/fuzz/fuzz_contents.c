/* SPDX-License-Identifier: Apache-2.0 */
/* Contents of a checkpoint: the records of a CONTENTS section.
 *
 * Every record is inside the section and the walk ends; accepted rows are found again, whole and in
 * part, with their bytes, and no others are found. */
#include "checkpoint/checkpoint.h"
#include "flow/contents.h"
#include "fuzz.h"

static void check_found(const struct rp_contents *contents, const struct rp_content_record *record,
                        const void *tokens)
{
    uint64_t bytes;
    const uint8_t *base = rp_contents_bytes(contents, &bytes);
    const struct rp_content_run *run = rp_contents_find(contents, record->row, record->offset,
                                                        record->count);
    FUZZ_REQUIRE(run && run->row == record->row && run->offset == record->offset);
    uint64_t run_bytes = (uint64_t)run->count * run->width;
    FUZZ_REQUIRE(run->count == record->count && run->width == record->width);
    FUZZ_REQUIRE(rp_range_inside(run->byte_offset, run_bytes, bytes));
    FUZZ_REQUIRE(memcmp(base + run->byte_offset, tokens, run_bytes) == 0);
    uint32_t last = record->offset + record->count - 1;
    FUZZ_REQUIRE(rp_contents_find(contents, record->row, last, 1) == run);
    FUZZ_REQUIRE(rp_contents_find(contents, record->row, record->offset, record->count + 1) != run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    data = fuzz_at_edge(data, size);
    struct rp_contents *contents = rp_contents_new(data, size);
    struct rp_content_record record;
    const void *tokens;
    size_t cursor = 0, before = 0;
    int code;
    FUZZ_REQUIRE(contents);
    for (; (code = rp_content_next(data, size, &cursor, &record, &tokens)) == 1; before = cursor) {
        uint64_t bytes = (uint64_t)record.count * record.width;
        FUZZ_REQUIRE(cursor > before && cursor <= size && cursor % 8 == 0);
        FUZZ_REQUIRE((const uint8_t *)tokens == data + before + sizeof record);
        FUZZ_REQUIRE(bytes > 0 && bytes <= cursor - before - sizeof record);
        code = rp_contents_add(contents, record.row, record.offset, record.count, record.width,
                               tokens);
        FUZZ_REQUIRE(code == 0 || code == -RP_E_CORRUPT);
        if (code == 0)
            check_found(contents, &record, tokens);
    }
    FUZZ_REQUIRE(code == 0 ? cursor == size : code == -RP_E_CORRUPT);
    rp_contents_free(contents);
    return 0;
}
