/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h — the sections of a batch, their types and their shapes.
 *
 * A batch is the `rows` rows that one rank takes in one micro-step. It is immutable. Its sections
 * are dense arrays, rows outermost, so the same bytes can be used as [rows][seq_len] and as [rows *
 * seq_len]. D is max_docs_per_row; a *fragment* is the part of a document that is in one row. */
#ifndef RINGPACK_BATCH_H
#define RINGPACK_BATCH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rp_dtype {
    RP_DTYPE_NONE,
    RP_DTYPE_U16,
    RP_DTYPE_I32,
    RP_DTYPE_I64,
    RP_DTYPE_F32,
    RP_DTYPE_RECORD,
    /* columns only */
    RP_DTYPE_BF16,
    RP_DTYPE_F16,
    RP_DTYPE_F64,
    RP_DTYPE_U8,
    RP_DTYPE_I8,
    RP_DTYPE_I16
};

/* For each section its shape, element type and content. ROWS, DOC_LENS and INPUT_IDS are in every
 * batch, the others if the run's config enables them. The numbers are part of the ABI. */
enum rp_section {
    /* [rows] struct rp_row_info */
    RP_SECTION_ROWS = 0,
    /* [rows][D] i32: length of every fragment in tokens, then zeros */
    RP_SECTION_DOC_LENS = 1,
    /* [rows][seq_len] i32 | i64 | u16: tokens of all fragments, then pad_id. With an alignment
     * (struct rp_row_plan) each fragment occupies a multiple of `align` places: its tokens, then
     * pad_id, the *padding inside the row* */
    RP_SECTION_INPUT_IDS = 2,
    /* [rows][seq_len] i32 | i64. RP_LABELS_SHIFTED: the next token of the fragment, -100 at its
     * last token. RP_LABELS_ALIGNED: the token itself, -100 at its first. -100 on padding, and in
     * place of tokens that a mask says are not trained (engine/plan/STREAM.md, section 10).
     * RP_LABELS_ACROSS_CUTS: as SHIFTED, but at the last token of a fragment the document's next
     * token, if there is one that is trained (engine/plan/STREAM2.md, section 11) */
    RP_SECTION_LABELS = 3,
    /* [rows][seq_len] i32 | i64: 0, 1, … within each fragment, on through its padding inside the
     * row; and 0, 1, … within the padding at the end of the row */
    RP_SECTION_POSITION_IDS = 4,
    /* [rows][seq_len] i32: 1, 2, … by fragment, 0 on padding */
    RP_SECTION_SEGMENT_IDS = 5,
    /* [rows][seq_len] f32: 1 if the shifted label is a token, else 0 */
    RP_SECTION_LOSS_MASK = 6,
    /* [rows * (D + 1) + 1] i32: 0, then the end of every fragment, with its padding inside the row,
     * and of every row's padding at its end, counted in places of the whole batch, then rows *
     * seq_len in all unused elements. Every segment begins with position 0 */
    RP_SECTION_CU_SEQLENS = 7,
    /* [rows][D] struct rp_provenance, zeros after the last fragment */
    RP_SECTION_PROVENANCE = 8,
    /* [rows] struct rp_row_plan: in every batch of stream version 2, in none of version 1. No
     * config names it */
    RP_SECTION_ROW_PLANS = 9,
    RP_SECTION_COUNT = 10, /* number of sections in this header */
    /* RP_SECTION_SIDES + c: side column c of the geometry, [rows][seq_len][count]: the entry of
     * each token, or of the token that is its label; zeros on padding, on inserted tokens, and
     * where a token has no label of its fragment. Or [rows][D]: a number of each document */
    RP_SECTION_SIDES = 10,
};

/* Length of every array that is indexed by enum rp_section. It never changes, so a new section
 * moves no field. Unused elements are 0 or NULL. */
#define RP_SECTION_ROOM 16

/* The records of ROWS, PROVENANCE and ROW_PLANS never change; other records would be other
 * sections. */
struct rp_row_info {
    uint64_t row;       /* global row number */
    uint32_t fragments; /* 0: only padding, after the end of the stream or of the row's lane, or in
                           a row that is skipped */
    uint32_t tokens;    /* real tokens, at most seq_len */
};

/* A row of stream version 2 (engine/plan/STREAM2.md). */
struct rp_row_plan {
    uint64_t planned;    /* its number in the order of packing, which digests use */
    uint32_t align;      /* at least 1: places of a fragment are a multiple of it */
    uint32_t is_skipped; /* 1: it was planned and is not delivered */
};

/* `length` tokens of `document` of `source`, from token `offset` of it on. */
struct rp_provenance {
    uint64_t document, offset;
    uint32_t source, length;
};

enum rp_label_mode { RP_LABELS_SHIFTED, RP_LABELS_ALIGNED, RP_LABELS_ACROSS_CUTS };

/* Bits of rp_batch.known: sums that are known. */
enum rp_known_sums {
    RP_KNOWN_STEP = 1, /* step_rows, step_tokens, step_tokens_loss */
    RP_KNOWN_COST = 2, /* cost */
};

/* A section in every slot of a ring. */
struct rp_section_layout {
    uint64_t offset;   /* bytes from the start of the slot, a multiple of 64; 0 = no such section */
    uint64_t bytes;    /* all bytes of the section */
    uint32_t dtype;    /* enum rp_dtype */
    uint32_t reserved; /* zero */
};

#define RP_SIDES_MAX 6
#define RP_SIDE_NAME_BYTES 32   /* with its NUL */
#define RP_SIDE_ENTRY_BYTES 512 /* the most */

enum rp_side_of {
    RP_SIDE_NONE,
    RP_SIDE_OF_TOKEN, /* place i has the entry of token i */
    RP_SIDE_OF_LABEL, /* place i has the entry of the token that LABELS has there */
    /* [rows][D] i64 | f64, not [rows][seq_len]: a number of the document of each fragment */
    RP_SIDE_OF_DOCUMENT,
};

/* A side column: `count` values for each token, or a number for each fragment. */
struct rp_side {
    char name[RP_SIDE_NAME_BYTES];
    uint32_t dtype; /* enum rp_dtype: a number */
    uint32_t count; /* at least 1 */
    uint32_t bytes; /* size of an entry */
    uint32_t of;    /* enum rp_side_of; NONE: there is no such column, nor a later one */
};

/* The immutable shape of a run, for one rank. The library fills it in, and struct_size is the size
 * that the library knows. */
struct rp_geometry {
    uint64_t struct_size;      /* in bytes; fields beyond them do not exist */
    uint32_t rows;             /* the most rows of this rank in a micro-batch (batch_size) */
    uint32_t seq_len;          /* tokens in a row */
    uint32_t max_docs_per_row; /* D */
    uint32_t world;            /* ranks that share the stream (dp_world_size) */
    uint32_t rank;             /* this one, 0 .. world - 1 */
    uint32_t micro_batches;    /* per step of stage 0: global_batch_size / (rows * world) */
    uint32_t slots;            /* batches the ring holds */
    uint32_t label_mode;       /* enum rp_label_mode */
    int64_t pad_id;
    uint64_t base_row;    /* global row where micro-batch 0 of this run starts */
    uint64_t state_bytes; /* capacity of a state token, in bytes */
    uint64_t slot_bytes;  /* distance between slots */
    struct rp_section_layout sections[RP_SECTION_ROOM]; /* by enum rp_section */
    struct rp_side sides[RP_SIDES_MAX]; /* column c is section RP_SECTION_SIDES + c */
};

#ifdef __cplusplus
}
#endif
#endif
