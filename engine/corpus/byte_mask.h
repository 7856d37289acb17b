/* SPDX-License-Identifier: Apache-2.0 */
/* byte_mask.h — masks in a companion file with one byte for each token of a token file: datatrove's
 * .loss, and the label masks of OLMo. A mask is read once, in the order of the documents, and
 * becomes spans. */
#ifndef RP_CORPUS_BYTE_MASK_H
#define RP_CORPUS_BYTE_MASK_H

#include "corpus/buffered.h"
#include "corpus/reader.h"

/* The mask of a token file, which may have none. */
struct rp_byte_mask {
    char *path; /* NULL: the token file has no mask */
    struct rp_buffered file;
    struct rp_mask_rule rule;
    struct rp_span_list spans; /* the newest document's */
};
#define RP_BYTE_MASK_NONE                                                                          \
    {                                                                                              \
        .file.fd = -1                                                                              \
    }

/* Beginnings of the names of OLMo's token files and masks. */
extern const struct rp_companion rp_byte_masks_of_olmo[];

/* The companion file that has the mask of a token file, if it exists. */
struct rp_mask_file {
    char *path; /* NULL: out of memory */
    const char *name;
    const char *hint; /* if the mask was chosen by name, and the file is missing */
};
/** Use the mask of a companion file, whose path is freed. If the file exists, this sets mask->path
 * and the layout's fields of spans. A missing file is an error only if the mask was chosen by
 * name. */
RP_MUST_CHECK int rp_byte_mask_find(struct rp_byte_mask *mask, struct rp_mask_file file,
                                    const struct rp_probe *probe,
                                    const struct rp_mask_choice *choice, struct rp_layout *layout,
                                    struct rp_error *error);
/** As rp_byte_mask_find, by OLMo's names, also for raw files: token_ids_*.npy has
 * labels_mask_*.npy, input_ids*.npy has label_mask*.npy. A mask that was chosen by name is
 * NAME_*.npy. */
RP_MUST_CHECK int rp_byte_mask_find_olmo(struct rp_byte_mask *mask, const struct rp_probe *probe,
                                         const struct rp_mask_choice *choice,
                                         struct rp_layout *layout, struct rp_error *error);

/** Open the file at mask->path, which must have one byte for each token. No effect without a
 * mask. */
RP_MUST_CHECK int rp_byte_mask_open(struct rp_byte_mask *mask, const struct rp_probe *probe,
                                    const struct rp_reader_options *options,
                                    const struct rp_layout *layout, struct rp_error *error);
/** Find the spans of the document of tokens [begin, end), which are inside the token file. */
RP_MUST_CHECK int rp_byte_mask_read(struct rp_byte_mask *mask, uint64_t document, uint64_t begin,
                                    uint64_t end, struct rp_error *error);
void rp_byte_mask_close(struct rp_byte_mask *mask);

#endif
