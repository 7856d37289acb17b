/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint file: u8 mode (1: the bytes are the file, 0: made from a description; 2: hashes made
 * right again). Description: u64 next row, u16 rows of contents, u16 lengths of the three sections,
 * their bytes, then edits of the file.
 *
 * Made and not edited: accepted, and the sections are what was put in. Accepted: encoding what was
 * read gives the head of the file again, and the contents are whole or said to be bad. Edited and
 * not mended: refused, or only the contents are lost. */
#include "checkpoint/format.h"
#include "fuzz.h"

#define FILE_BYTES_MAX (1u << 16)
#define SECTIONS 3u
#define HASH_BYTES sizeof(struct rp_hash128)

static _Alignas(8) uint8_t image[FILE_BYTES_MAX], good[FILE_BYTES_MAX];

/* Returns the length of the file; 0 when there can be none of that description. */
static uint64_t make_file(struct fuzz_input *input)
{
    struct rp_format_head head = {.info = {.next_row = fuzz_number(input, 8), .run = "fuzz"}};
    head.info.contents_end_row = head.info.next_row + fuzz_number(input, 2);
    uint64_t lengths[SECTIONS];
    for (unsigned i = 0; i < SECTIONS; i++)
        lengths[i] = fuzz_number(input, 2) % 4200;
    memset(image, 0, sizeof image);
    for (uint32_t i = 0; i < SECTIONS; i++) {
        struct rp_format_section section = {.type = i + 1,
                                            .bytes = rp_min_u64(lengths[i], input->left)};
        section.hash = rp_hash128(input->at, section.bytes);
        if (i == 0 || section.bytes > 0)
            head.sections[head.section_count++] = section;
        input->at += section.bytes;
        input->left -= section.bytes;
    }
    const uint8_t *data = input->at;
    if (rp_format_layout(&head, NULL) < 0)
        return 0;
    for (uint32_t i = head.section_count; i-- > 0;) {
        data -= head.sections[i].bytes;
        memcpy(image + head.sections[i].offset, data, head.sections[i].bytes);
    }
    rp_format_encode_head(&head, image);
    rp_format_encode_footer(&head, image + head.file_bytes - RP_FORMAT_FOOTER_BYTES);
    return head.file_bytes;
}

static void mend_hash(uint8_t *part, size_t bytes)
{
    struct rp_hash128 hash = rp_hash128(part, bytes - HASH_BYTES);
    memcpy(part + bytes - HASH_BYTES, &hash, HASH_BYTES);
}

static void mend(uint64_t bytes)
{
    uint8_t *footer = image + bytes - RP_FORMAT_FOOTER_BYTES;
    for (uint32_t i = 0; i < SECTIONS; i++) {
        uint8_t *entry = image + 512 + 64 * i; /* FORMAT.md, table: offset, bytes, hash */
        uint64_t offset = rp_load_u64(entry + 8), length = rp_load_u64(entry + 16);
        if (rp_load_u32(entry) == 0 || !rp_range_inside(offset, length, bytes))
            continue;
        struct rp_hash128 hash = rp_hash128(image + offset, length);
        memcpy(entry + 24, &hash, HASH_BYTES);
    }
    mend_hash(image, RP_FORMAT_HEAD_BYTES);
    memcpy(footer + 32, image + RP_FORMAT_HEAD_BYTES - HASH_BYTES, HASH_BYTES);
    mend_hash(footer, RP_FORMAT_FOOTER_BYTES);
}

static void check_accepted(const struct rp_checkpoint *checkpoint)
{
    static _Alignas(8) uint8_t again[RP_FORMAT_HEAD_BYTES];
    const struct rp_checkpoint_info *info = rp_checkpoint_info(checkpoint);
    size_t bytes, cursor = 0;
    const void *state = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes), *tokens;
    FUZZ_REQUIRE(state && bytes > 0);
    struct rp_format_head head;
    FUZZ_REQUIRE(rp_format_parse_head(&head, image, rp_load_u64(image + 16), "", NULL) == 0);
    rp_format_encode_head(&head, again);
    FUZZ_REQUIRE(memcmp(again, image, sizeof again) == 0);
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
    if (mode & 2 && bytes >= RP_FORMAT_BYTES_MIN)
        mend(bytes);
    struct rp_checkpoint *checkpoint;
    int code = rp_checkpoint_open(&checkpoint, fuzz_file(image, bytes), &error);
    bool same = memcmp(image, good, bytes) == 0, made = !(mode & 1) && bytes > 0;
    FUZZ_REQUIRE(!made || !same || code == 0);
    if (fuzz_accepted(code, &error)) {
        FUZZ_REQUIRE(!made || same || mode & 2 || rp_checkpoint_contents_bad(checkpoint));
        check_accepted(checkpoint);
        rp_checkpoint_close(checkpoint);
    }
    return 0;
}
