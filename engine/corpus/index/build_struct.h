/* SPDX-License-Identifier: Apache-2.0 */
/* build_struct.h — a build and its shards. Private to build.c (finds new shards), list.c,
 * companions.c and scan.c (the facts of each shard), build_layout.c, write_shard.c and finish.c
 * (write the file). */
#ifndef RP_CORPUS_INDEX_BUILD_STRUCT_H
#define RP_CORPUS_INDEX_BUILD_STRUCT_H

#include <errno.h>

#include "corpus/index/build.h"
#include "corpus/index/write.h"
#include "corpus/shard.h"
#include "object/remote.h"

/* The source of a shard's facts. */
enum rp_index_origin {
    RP_FROM_NOTHING, /* not scanned yet */
    RP_FROM_OLDER,   /* shard older_shard of the older index */
    RP_FROM_SIDECAR, /* the shard's own sidecar */
    RP_FROM_WORK     /* the sidecar in PATH.work */
};

struct rp_build_shard {
    const char *path; /* from the options; for an object, its display URL */
    char *stored;     /* as in the index: the path; of an object, also its identity, after a NUL */
    size_t stored_bytes;
    const struct rp_remote *remote; /* NULL: it is a file */
    uint32_t source;
    enum rp_index_origin origin;
    bool was_read;        /* all its tokens, by this build */
    bool has_identity;    /* object: the server gives an identity for it, its .idx and its mask */
    bool has_new_content; /* object: one of these identities differs from the older index */
    const struct rp_index_segment *older; /* NULL: the older index does not have this shard */
    uint32_t older_source, older_shard;
    uint64_t bytes, mtime_ns;              /* at open; for an object, a hash of its identity */
    struct rp_index_companions companions; /* likewise */
    struct rp_index_record record;
    struct rp_tokenizer_id tokenizer;
    uint64_t spans;
    uint64_t first_document, first_span; /* in the new segment, as the places in the record */
};

/* The shards of a source that are written, and their segment. */
struct rp_build_source {
    uint64_t first, count; /* among the build's shards */
    struct rp_index_shape shape;
    struct rp_index_segment *segment; /* the draft's; NULL: no shard of this source is written */
    const char **texts;               /* the draft's; the patterns are its own memory */
    char found_mask[RP_MASK_TEXT_BYTES], eos[24];
    struct rp_tokenizer_known tokenizer;
};

struct rp_indexing {
    struct rp_indexing_options options;
    struct rp_index_paths paths;
    struct rp_index *older; /* NULL: no older index counts */
    bool appends;           /* to the older index; false: replaces it */
    bool keeps_texts;       /* with names and patterns of the older index */
    char why[320];
    char *work; /* the folder */
    int work_fd;
    struct rp_build_shard *shards;
    uint64_t shard_count;
    struct rp_remote *remotes; /* the shards that are objects, in their order */
    size_t remote_count;
    struct rp_build_source *sources;
    /* the file that is written, and its contents */
    struct rp_new_file file; /* unused by an append */
    struct rp_index_writer writer;
    struct rp_index draft;
};

static inline int rp_build_fail_memory(const struct rp_indexing *build, struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "%s: no memory to make it", build->options.path);
}

/** The sidecar of a shard in PATH.work; the caller frees it. NULL when out of memory. */
char *rp_build_work_path(const struct rp_indexing *build, const struct rp_build_shard *shard);

/* list.c */

RP_MUST_CHECK int rp_build_list_shards(struct rp_indexing *build, struct rp_error *error);

/* companions.c */

/** Take the times of a token file's companion files. False: no memory for their names. */
RP_MUST_CHECK bool rp_build_stat_companions(struct rp_index_companions *companions,
                                            const char *token_path,
                                            const struct rp_mask_choice *mask,
                                            const char *index_dir);

/** The same for all shards that are objects in stores. */
RP_MUST_CHECK int rp_build_stat_object_companions(struct rp_indexing *build,
                                                  struct rp_error *error);

/* scan.c */

/** Open a shard with its own sidecar, or with the one at work_path if that is not NULL. */
RP_MUST_CHECK int rp_build_open_shard(const struct rp_indexing *build,
                                      const struct rp_build_shard *shard, const char *work_path,
                                      struct rp_opened *opened, struct rp_error *error);

#endif
