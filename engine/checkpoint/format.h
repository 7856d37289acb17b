/* SPDX-License-Identifier: Apache-2.0 */
/* format.h — encode, parse and verify the bytes of a checkpoint file in memory. FORMAT.md specifies
 * them.
 *
 * No function here opens a file or allocates, and no number of a file is trusted: every size is
 * compared with the length of the file before it is used, and every byte of a file is fixed,
 * hashed, a hash, or required to be zero. */
#ifndef RP_CHECKPOINT_FORMAT_H
#define RP_CHECKPOINT_FORMAT_H

#include "checkpoint/checkpoint.h"

#define RP_CHECKPOINT_VERSION 1u
#define RP_CHECKPOINT_PAGE_BYTES 4096u /* sections and the file are multiples of it */
#define RP_CHECKPOINT_HEAD_BYTES 8192u /* fields, table of sections, hash; in every version */
#define RP_CHECKPOINT_FOOTER_BYTES 4096u
#define RP_CHECKPOINT_BYTES_MIN (RP_CHECKPOINT_HEAD_BYTES + RP_CHECKPOINT_FOOTER_BYTES)

struct rp_checkpoint_format_section {
    uint32_t type;
    bool critical;
    uint64_t offset, bytes;
    struct rp_hash128 hash; /* over exactly `bytes` bytes; the padding after them is zero */
};

/* A decoded head. Before encoding, the caller fills info, section_count and each section's type,
 * bytes and hash; rp_checkpoint_layout computes the other fields. */
struct rp_checkpoint_head {
    struct rp_checkpoint_info info;
    uint64_t file_bytes;
    uint32_t section_count;
    struct rp_checkpoint_format_section sections[RP_CHECKPOINT_SECTIONS_MAX];
    struct rp_hash128 hash; /* the encoded head's; the footer repeats it */
};

/** Set each section's offset and `critical`, and file_bytes. -RP_E_USAGE when types do not ascend,
 * the state token is missing or empty, the texts or rows of info cannot be stored, or the file
 * would be too long. */
RP_MUST_CHECK int rp_checkpoint_layout(struct rp_checkpoint_head *head, struct rp_error *error);

/** Encode a head that was laid out, and set head->hash. */
void rp_checkpoint_encode_head(struct rp_checkpoint_head *head, void *bytes);
void rp_checkpoint_encode_footer(const struct rp_checkpoint_head *head, void *bytes);

/* The hint of every error about a damaged checkpoint. */
extern const char rp_checkpoint_damaged_hint[];

/** Decode the first RP_CHECKPOINT_HEAD_BYTES of a file of `file_bytes` bytes; `path` is for
 * messages. On success every section is inside the file. Errors: -RP_E_FORMAT (not a checkpoint),
 * -RP_E_CORRUPT, -RP_E_VERSION. */
RP_MUST_CHECK int rp_checkpoint_parse_head(struct rp_checkpoint_head *head, const void *bytes,
                                           uint64_t file_bytes, const char *path,
                                           struct rp_error *error);

/* Damage to advisory sections, or to the padding after them. */
struct rp_checkpoint_damage {
    bool contents;
    uint32_t other; /* the type of the first other one, 0 if all are whole */
};

/** Verify the rest of a file whose head was parsed: sections, padding, footer. Damage to advisory
 * sections only sets *damage, with a message in *error; any other damage is -RP_E_CORRUPT. */
RP_MUST_CHECK int rp_checkpoint_verify(const struct rp_checkpoint_head *head, const void *file,
                                       const char *path, struct rp_checkpoint_damage *damage,
                                       struct rp_error *error);

/** The section of a type, or NULL. */
const struct rp_checkpoint_format_section *rp_checkpoint_find(const struct rp_checkpoint_head *head,
                                                              uint32_t type);

#endif
