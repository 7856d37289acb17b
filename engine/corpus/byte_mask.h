/* SPDX-License-Identifier: Apache-2.0 */
/* byte_mask.h — a mask that is a file of its own, with one byte for each token of a token file:
 * datatrove's .loss, and the label masks of OLMo. It is read once, into spans, in the order of the
 * documents. */
#ifndef RP_CORPUS_BYTE_MASK_H
#define RP_CORPUS_BYTE_MASK_H

#include "corpus/buffered.h"
#include "corpus/readers.h"

/* The mask of a token file, which may have none. */
struct rp_byte_mask {
    char *path; /* NULL: there is none */
    struct rp_buffered file;
    struct rp_mask_rule rule;
    struct rp_span_list spans; /* of the document that was read last */
};
#define RP_BYTE_MASK_NONE                                                                          \
    {                                                                                              \
        .file.fd = -1                                                                              \
    }

/* How the names of OLMo's token files begin, and those of their masks. */
extern const struct rp_companion rp_byte_masks_of_olmo[];

/** Take the mask at `path`, which is freed, or NULL when out of memory. If it is there, mask->path
 * is set, and what the layout says of spans. A missing one is an error with the hint only if it was
 * chosen by its name. */
RP_MUST_CHECK int rp_byte_mask_find(struct rp_byte_mask *mask, char *path, const char *name,
                                    const char *hint, const struct rp_probe *probe,
                                    const struct rp_mask_choice *choice, struct rp_layout *layout,
                                    struct rp_error *error);
/** The same for the mask of a file of OLMo: of token_ids_*.npy it is labels_mask_*.npy, and of
 * input_ids*.npy label_mask*.npy; or, where another name was chosen, NAME_*.npy. */
RP_MUST_CHECK int rp_byte_mask_of_olmo(struct rp_byte_mask *mask, const struct rp_probe *probe,
                                       const struct rp_mask_choice *choice,
                                       struct rp_layout *layout, struct rp_error *error);

/** Open the file at mask->path, which must have a byte for each token. Nothing is done where there
 * is none. */
RP_MUST_CHECK int rp_byte_mask_open(struct rp_byte_mask *mask, const struct rp_probe *probe,
                                    const struct rp_reader_options *options,
                                    const struct rp_layout *layout, struct rp_error *error);
/** Find the spans of the document of tokens [begin, end), which lie in the token file. */
RP_MUST_CHECK int rp_byte_mask_read(struct rp_byte_mask *mask, uint64_t document, uint64_t begin,
                                    uint64_t end, struct rp_error *error);
void rp_byte_mask_close(struct rp_byte_mask *mask);

#endif
