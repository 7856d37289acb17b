/* SPDX-License-Identifier: Apache-2.0 */
/* readers.h — the list of readers (reader.h); all code that depends on a file's format uses it. */
#ifndef RP_CORPUS_READERS_H
#define RP_CORPUS_READERS_H

#include "corpus/reader.h"

/** As rp_mask_check; if the format cannot have masks, the error says so. */
RP_MUST_CHECK int rp_readers_check_mask(enum rp_format format, const struct rp_mask_choice *choice,
                                        const struct rp_mask_origin *origin, const char *path,
                                        struct rp_error *error);

/** The reader of a format; NULL for AUTO. */
const struct rp_reader *rp_readers_find(enum rp_format format);

/** The reader that claims a file without a declared format. 1: *reader_out is it. 0: no reader
 * claims it. Negative: a reader knows the file and cannot read it. by_bytes: names do not count,
 * because a sidecar knows the format. */
RP_MUST_CHECK int rp_readers_claim(const struct rp_probe *probe,
                                   const struct rp_reader **reader_out, bool by_bytes,
                                   char why[256], struct rp_error *error);

/** The token files of a folder, in their order, from the first reader whose format the folder has.
 * In a store, if no reader knows the folder: all files that have a sidecar. Returns 0 and adds no
 * file if the folder has no known format. The path may be a URL that ends with a slash. */
RP_MUST_CHECK int rp_readers_expand(const char *path, struct rp_paths *files,
                                    struct rp_error *error);
/** The known contents of folders, for messages: "NAME.bin with NAME.idx, …". */
void rp_readers_folders(char *text, size_t bytes);

/* All readers. The first one that claims a file or a folder reads it. */
extern const struct rp_reader *const rp_readers[];
extern const size_t rp_readers_count;

#endif
