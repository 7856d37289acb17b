/* SPDX-License-Identifier: Apache-2.0 */
/* format.h — the bytes of a checkpoint file, in memory: encode, parse, verify. FORMAT.md says the
 * same in prose.
 *
 * Nothing here opens a file, allocates, or trusts a number: every size is held against the length
 * of the file before it is used, and every byte of a file is fixed, hashed, a hash, or required to
 * be zero. */
#ifndef RP_CHECKPOINT_FORMAT_H
#define RP_CHECKPOINT_FORMAT_H

#include "checkpoint/checkpoint.h"

#define RP_CHECKPOINT_VERSION 1u
#define RP_CHECKPOINT_PAGE_BYTES 4096u /* sections and the file are multiples of it */
#define RP_CHECKPOINT_HEAD_BYTES 8192u /* fields, table of sections, hash: so in every version */
#define RP_CHECKPOINT_FOOTER_BYTES 4096u
#define RP_CHECKPOINT_BYTES_MIN (RP_CHECKPOINT_HEAD_BYTES + RP_CHECKPOINT_FOOTER_BYTES)

struct rp_checkpoint_format_section {
    uint32_t type;
    bool critical;
    uint64_t offset, bytes;
    struct rp_hash128 hash; /* of exactly `bytes`; the padding after them is zero */
};

/* A head, decoded. Whoever encodes one fills info, section_count and each section's type, bytes and
 * hash; rp_checkpoint_layout does the rest. */
struct rp_checkpoint_head {
    struct rp_checkpoint_info info;
    uint64_t file_bytes;
    uint32_t section_count;
    struct rp_checkpoint_format_section sections[RP_CHECKPOINT_SECTIONS_MAX];
    struct rp_hash128 hash; /* of the encoded head: what the footer repeats */
};

/** Set offsets, criticality and file_bytes. -RP_E_USAGE when types do not ascend, the state is
 * missing or empty, the texts or rows of info are not fit to be stored, or the file would be too
 * long. */
RP_MUST_CHECK int rp_checkpoint_layout(struct rp_checkpoint_head *head, struct rp_error *error);

/** Encode a head that was laid out, and set head->hash. */
void rp_checkpoint_encode_head(struct rp_checkpoint_head *head, void *bytes);
void rp_checkpoint_encode_footer(const struct rp_checkpoint_head *head, void *bytes);

/* What to do about a damaged checkpoint. */
extern const char rp_checkpoint_damaged_hint[];

/** Do these bytes, 8 at least, begin as a checkpoint does? */
bool rp_checkpoint_is_head(const void *bytes);

/** Decode the first RP_CHECKPOINT_HEAD_BYTES of a file of `file_bytes`; `path` is for messages. On
 * success every section lies inside the file. Errors: -RP_E_FORMAT (no checkpoint at all),
 * -RP_E_CORRUPT, -RP_E_VERSION. */
RP_MUST_CHECK int rp_checkpoint_parse_head(struct rp_checkpoint_head *head, const void *bytes,
                                           uint64_t file_bytes, const char *path,
                                           struct rp_error *error);

/** Verify the whole file behind a parsed head: sections, padding, footer. Damaged contents only set
 *  *contents_bad, with a message in *error; anything else that is damaged is -RP_E_CORRUPT. */
RP_MUST_CHECK int rp_checkpoint_verify(const struct rp_checkpoint_head *head, const void *file,
                                       const char *path, bool *contents_bad,
                                       struct rp_error *error);

/** The section of a type, or NULL. */
const struct rp_checkpoint_format_section *rp_checkpoint_find(const struct rp_checkpoint_head *head,
                                                              uint32_t type);

#endif
