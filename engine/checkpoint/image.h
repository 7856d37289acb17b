/* SPDX-License-Identifier: Apache-2.0 */
/* image.h — the bytes of a checkpoint file as spans, for the writer and for comparison
 * with a file. */
#ifndef RP_CHECKPOINT_IMAGE_H
#define RP_CHECKPOINT_IMAGE_H

#include "checkpoint/format.h"
#include "checkpoint/writer.h"

#define RP_IMAGE_SPANS_MAX (2 + 2 * RP_CHECKPOINT_SECTIONS_MAX)

/* It has pointers into itself, so it must not be moved. */
struct rp_image {
    struct rp_writer_file file; /* the first member: seal() casts back from it */
    struct rp_checkpoint_head head;
    /* Head, then each section and its padding, then the footer. */
    struct rp_writer_span spans[RP_IMAGE_SPANS_MAX];
    struct rp_checkpoint_piece own[RP_IMAGE_SPANS_MAX]; /* head, padding and footer */
    uint8_t head_bytes[RP_CHECKPOINT_HEAD_BYTES];
    uint8_t footer_bytes[RP_CHECKPOINT_FOOTER_BYTES];
};

/** Fill in the head, with the hashes of all parts but growing ones. */
RP_MUST_CHECK int rp_image_lay_out(struct rp_image *image, const struct rp_checkpoint_info *info,
                                   const struct rp_checkpoint_part *parts, size_t part_count,
                                   struct rp_error *error);

/** Make the spans of a new attempt. Sections keep the hashes that the head has, so memory that
 * changes later is found by reading back. parts: NULL for the head of an existing file: the
 * spans have lengths and hashes, and no memory. Every byte of a file follows from its head or has a
 * hash in it, so reading back with these spans verifies the file. */
void rp_image_make_spans(struct rp_image *image, const struct rp_checkpoint_part *parts);

#endif
