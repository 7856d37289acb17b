/* SPDX-License-Identifier: Apache-2.0 */
/* image.c — see image.h. The head and the footer hold the hashes of all sections, so they are
 * encoded last, by seal(), when a growing section is complete. */
#include "checkpoint/image.h"

#include "base/bits.h"
#include "checkpoint/growing_section.h"

static const uint8_t padding[RP_CHECKPOINT_PAGE_BYTES];

static void hash_section(struct rp_checkpoint_format_section *section,
                         const struct rp_checkpoint_part *part)
{
    section->type = part->type;
    section->bytes = 0;
    if (part->growing) { /* rp_growing_section_add hashes it */
        section->bytes = rp_growing_section_piece(part->growing)->bytes;
        return;
    }
    struct rp_hasher hasher;
    rp_hasher_begin(&hasher);
    for (size_t i = 0; i < part->piece_count; i++) {
        if (part->pieces[i].bytes)
            rp_hasher_add(&hasher, part->pieces[i].data, part->pieces[i].bytes);
        section->bytes += part->pieces[i].bytes;
    }
    section->hash = rp_hasher_finish(&hasher);
}

int rp_image_lay_out(struct rp_image *image, const struct rp_checkpoint_info *info,
                     const struct rp_checkpoint_part *parts, size_t part_count,
                     struct rp_error *error)
{
    if (part_count > RP_CHECKPOINT_SECTIONS_MAX)
        return rp_fail(error, -RP_E_USAGE, NULL, "checkpoint: %zu sections, at most %u", part_count,
                       RP_CHECKPOINT_SECTIONS_MAX);
    image->head.info = *info;
    image->head.section_count = (uint32_t)part_count;
    for (size_t i = 0; i < part_count; i++)
        hash_section(&image->head.sections[i], &parts[i]);
    return rp_checkpoint_layout(&image->head, error);
}

static void add_span(struct rp_image *image, const struct rp_writer_span *span)
{
    RP_ASSERT(image->file.span_count < RP_IMAGE_SPANS_MAX);
    image->spans[image->file.span_count++] = *span;
}

static void add_own(struct rp_image *image, const void *data, size_t bytes)
{
    struct rp_checkpoint_piece *piece = &image->own[image->file.span_count];
    *piece = (struct rp_checkpoint_piece){data, bytes};
    add_span(image, &(struct rp_writer_span){piece, 1, bytes, rp_hash128(data, bytes), NULL});
}

static void seal(struct rp_writer_file *file)
{
    struct rp_image *image = (struct rp_image *)file;
    struct rp_checkpoint_head *head = &image->head;
    for (uint32_t i = 0; i < head->section_count; i++) {
        struct rp_writer_span *span = &image->spans[1 + 2 * i];
        if (span->growing)
            span->hash = head->sections[i].hash = rp_growing_section_hash(span->growing);
    }
    rp_checkpoint_encode_head(head, image->head_bytes);
    rp_checkpoint_encode_footer(head, image->footer_bytes);
    image->spans[0].hash = rp_hash128(image->head_bytes, sizeof image->head_bytes);
    image->spans[file->span_count - 1].hash = rp_hash128(image->footer_bytes,
                                                         sizeof image->footer_bytes);
}

static const struct rp_checkpoint_part no_part;

void rp_image_make_spans(struct rp_image *image, const struct rp_checkpoint_part *parts)
{
    const struct rp_checkpoint_head *head = &image->head;
    image->file = (struct rp_writer_file){
        .spans = image->spans, .seal = seal, .is_read_back_later = true};
    add_own(image, image->head_bytes, sizeof image->head_bytes);
    for (uint32_t i = 0; i < head->section_count; i++) {
        const struct rp_checkpoint_format_section *section = &head->sections[i];
        const struct rp_checkpoint_part *part = parts ? &parts[i] : &no_part;
        add_span(image, &(struct rp_writer_span){
                            .pieces = part->growing ? rp_growing_section_piece(part->growing)
                                                    : part->pieces,
                            .piece_count = part->growing ? 1 : part->piece_count,
                            .bytes = section->bytes,
                            .hash = section->hash,
                            .growing = part->growing,
                        });
        add_own(image, padding,
                (size_t)(rp_align_up(section->bytes, RP_CHECKPOINT_PAGE_BYTES) - section->bytes));
    }
    add_own(image, image->footer_bytes, sizeof image->footer_bytes);
    if (!parts)
        seal(&image->file);
}
