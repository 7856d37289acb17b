/* SPDX-License-Identifier: Apache-2.0 */
/* listing.h — the checkpoints of a directory by name, newest first. No file is opened. */
#ifndef RP_CHECKPOINT_LISTING_H
#define RP_CHECKPOINT_LISTING_H

#include <dirent.h>

#include "checkpoint/checkpoint.h"

#define RP_SEQUENCE_MAX UINT64_C(999999999999) /* twelve digits, so that names sort as numbers */

enum rp_name_kind { RP_NAME_CURRENT, RP_NAME_BAD, RP_NAME_REWOUND };

#define RP_NAME_BYTES 40
struct rp_name {
    char text[RP_NAME_BYTES]; /* checkpoint-000000000007.rpc, then ".bad" or ".rewound" */
    uint64_t sequence;
    enum rp_name_kind kind;
};

void rp_name_make(struct rp_name *name, uint64_t sequence, enum rp_name_kind kind);
/** False if `text` is not exactly an output of rp_name_make. */
bool rp_name_parse(struct rp_name *name, const char *text);

struct rp_listing {
    int dir; /* the directory, and its path for messages; both borrowed */
    const char *path;
    struct rp_name *names; /* newest first, of all kinds */
    size_t count;
};
/** Open the names of the directory `dir` (`path` is for messages), with a read position of their
 * own: all users of the descriptor `dir` share one. Close it with closedir. */
RP_MUST_CHECK int rp_names_open(DIR **stream_out, int dir, const char *path,
                                struct rp_error *error);

/** List the directory `dir`. Free with rp_listing_free, also after a failure. */
RP_MUST_CHECK int rp_listing_open(struct rp_listing *listing, int dir, const char *path,
                                  struct rp_error *error);
void rp_listing_free(struct rp_listing *listing);

#endif
