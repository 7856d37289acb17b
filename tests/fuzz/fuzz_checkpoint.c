/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint file: u8 mode (1: the bytes are the file, 0: made from a description; 2: hashes made
 * right again). Description: u64 next row, u16 rows of contents, u16 lengths of the three sections,
 * their bytes, then edits of the file.
 *
 * Made and not edited: accepted, with the sections that were put in. Accepted: its encoding gives
 * the head of the file again, and the contents are whole or reported as bad. Edited and not mended:
 * refused, or only the contents are lost. */
#include "checkpoint_image.h"

static _Alignas(8) uint8_t good[FILE_BYTES_MAX];

static void check_accepted(const struct rp_checkpoint *checkpoint)
{
    static _Alignas(8) uint8_t again[RP_CHECKPOINT_HEAD_BYTES];
    const struct rp_checkpoint_info *info = rp_checkpoint_info(checkpoint);
    size_t bytes, cursor = 0;
    const void *state = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes), *tokens;
    FUZZ_REQUIRE(state && bytes > 0);
    struct rp_checkpoint_head head;
    FUZZ_REQUIRE(rp_checkpoint_parse_head(&head, image, rp_load_u64(image + 16), "", NULL) == 0);
    rp_checkpoint_encode_head(&head, again);
    FUZZ_REQUIRE(memcmp(again, image, sizeof again) == 0);
    for (uint32_t i = 0; i < head.section_count && head.sections[i].type <= SECTIONS; i++) {
        const struct rp_checkpoint_format_section *section = &head.sections[i];
        enum rp_checkpoint_section_type type = (enum rp_checkpoint_section_type)section->type;
        const void *found = rp_checkpoint_section(checkpoint, type, &bytes);
        FUZZ_REQUIRE(found || (type == RP_CHECKPOINT_CONTENTS && bytes == 0));
        FUZZ_REQUIRE(!found || bytes == section->bytes);
        FUZZ_REQUIRE(!found || memcmp(found, image + section->offset, bytes) == 0);
    }
    struct rp_content_record record = {0};
    const void *contents = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTENTS, &bytes);
    FUZZ_REQUIRE(!rp_checkpoint_contents_bad(checkpoint) || !contents);
    FUZZ_REQUIRE(contents || info->contents_end_row == info->next_row);
    int code = contents ? 1 : 0;
    while (code == 1 && (code = rp_content_next(contents, bytes, &cursor, &record, &tokens)) == 1)
        FUZZ_REQUIRE(record.row >= info->next_row && record.row < info->contents_end_row);
    FUZZ_REQUIRE(code == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    unsigned mode = (unsigned)fuzz_number(&input, 1);
    uint64_t bytes = mode & 1 ? rp_min_u64(input.left, sizeof image) : make_file(&input);
    if (mode & 1 && bytes)
        memcpy(image, input.at, bytes);
    memcpy(good, image, bytes);
    if (!(mode & 1))
        fuzz_edit(&input, image, bytes);
    if (mode & 2 && bytes >= RP_CHECKPOINT_BYTES_MIN)
        mend(bytes);
    struct rp_checkpoint *checkpoint;
    int code = rp_checkpoint_open(&checkpoint, fuzz_file("checkpoint", image, bytes), &error);
    bool same = memcmp(image, good, bytes) == 0, made = !(mode & 1) && bytes > 0;
    FUZZ_REQUIRE(!made || !same || code == 0);
    if (fuzz_accepted(code, &error)) {
        FUZZ_REQUIRE(!made || same || mode & 2 || rp_checkpoint_contents_bad(checkpoint));
        check_accepted(checkpoint);
        rp_checkpoint_close(checkpoint);
    }
    return 0;
}
