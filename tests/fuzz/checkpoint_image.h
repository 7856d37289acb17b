/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_image.h — a checkpoint file in memory: made from a description, and with its hashes
 * made right again after edits; and the memory that it is read into. */
#ifndef RP_TESTS_CHECKPOINT_IMAGE_H
#define RP_TESTS_CHECKPOINT_IMAGE_H

#include "checkpoint/format.h"
#include "fuzz.h"

#define FILE_BYTES_MAX (1u << 16)
#define SECTIONS 3u
#define HASH_BYTES sizeof(struct rp_hash128)

static _Alignas(8) uint8_t image[FILE_BYTES_MAX];

/* In the place of fresh pages: the same ones for each file, in front of a page that cannot be read.
 * No read is longer than the longest file, whatever a head says. */
void *__real_rp_take_pages(size_t bytes);
void *__wrap_rp_take_pages(size_t bytes);
void *__wrap_rp_take_pages(size_t bytes)
{
    static uint8_t *pages;
    if (!pages) {
        pages = __real_rp_take_pages(FILE_BYTES_MAX + RP_CHECKPOINT_PAGE_BYTES);
        FUZZ_REQUIRE(pages);
        FUZZ_REQUIRE(mprotect(pages + FILE_BYTES_MAX, RP_CHECKPOINT_PAGE_BYTES, PROT_NONE) == 0);
    }
    FUZZ_REQUIRE(bytes <= FILE_BYTES_MAX);
    return pages + FILE_BYTES_MAX - rp_align_up(bytes, RP_CHECKPOINT_PAGE_BYTES);
}

void __wrap_rp_give_pages(void *memory, size_t bytes);
void __wrap_rp_give_pages(void *memory, size_t bytes)
{
    (void)memory, (void)bytes;
}

/* Returns the length of the file; 0 when there can be none of that description. */
FUZZ uint64_t make_file(struct fuzz_input *input)
{
    struct rp_checkpoint_head head = {.info = {.next_row = fuzz_number(input, 8), .run = "fuzz"}};
    head.info.contents_end_row = head.info.next_row + fuzz_number(input, 2);
    uint64_t lengths[SECTIONS];
    for (unsigned i = 0; i < SECTIONS; i++)
        lengths[i] = fuzz_number(input, 2) % 4200;
    for (uint32_t i = 0; i < SECTIONS; i++) {
        struct rp_checkpoint_format_section section = {
            .type = i + 1, .bytes = rp_min_u64(lengths[i], input->left)};
        section.hash = rp_hash128(input->at, section.bytes);
        if (i == 0 || section.bytes > 0)
            head.sections[head.section_count++] = section;
        input->at += section.bytes;
        input->left -= section.bytes;
    }
    const uint8_t *data = input->at;
    if (rp_checkpoint_layout(&head, NULL) < 0)
        return 0;
    FUZZ_REQUIRE(head.file_bytes <= sizeof image);
    memset(image, 0, head.file_bytes);
    for (uint32_t i = head.section_count; i-- > 0;) {
        data -= head.sections[i].bytes;
        memcpy(image + head.sections[i].offset, data, head.sections[i].bytes);
    }
    rp_checkpoint_encode_head(&head, image);
    rp_checkpoint_encode_footer(&head, image + head.file_bytes - RP_CHECKPOINT_FOOTER_BYTES);
    return head.file_bytes;
}

FUZZ void mend_hash(uint8_t *part, size_t bytes)
{
    struct rp_hash128 hash = rp_hash128(part, bytes - HASH_BYTES);
    memcpy(part + bytes - HASH_BYTES, &hash, HASH_BYTES);
}

FUZZ void mend(uint64_t bytes)
{
    uint8_t *footer = image + bytes - RP_CHECKPOINT_FOOTER_BYTES;
    for (uint32_t i = 0; i < SECTIONS; i++) {
        uint8_t *entry = image + 512 + 64 * i; /* FORMAT.md, table: offset, bytes, hash */
        uint64_t offset = rp_load_u64(entry + 8), length = rp_load_u64(entry + 16);
        if (rp_load_u32(entry) == 0 || !rp_range_inside(offset, length, bytes))
            continue;
        struct rp_hash128 hash = rp_hash128(image + offset, length);
        memcpy(entry + 24, &hash, HASH_BYTES);
    }
    mend_hash(image, RP_CHECKPOINT_HEAD_BYTES);
    memcpy(footer + 32, image + RP_CHECKPOINT_HEAD_BYTES - HASH_BYTES, HASH_BYTES);
    mend_hash(footer, RP_CHECKPOINT_FOOTER_BYTES);
}

#endif
