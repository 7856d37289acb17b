/* SPDX-License-Identifier: Apache-2.0 */
/* build_struct.h — a build and its shards. Private to build.c, which decides what
 * is to be done, beside.c and learn.c, which find out what each shard is, place.c and
 * write.c, which write the file. */
#ifndef RP_CORPUS_MANIFEST_BUILD_STRUCT_H
#define RP_CORPUS_MANIFEST_BUILD_STRUCT_H

#include "corpus/manifest/build.h"
#include "corpus/shard.h"
#include "object/remote.h"

enum rp_manifest_origin {
    RP_FROM_NOTHING, /* yet */
    RP_FROM_OLDER,   /* the older manifest has it, in older[older_shard] */
    RP_FROM_SIDECAR, /* its own */
    RP_FROM_WORK     /* the one in PATH.work */
};

struct rp_build_shard {
    const char *path; /* of the options; of an object, its URL as people see it */
    char *stored;     /* as the manifest holds it: of the token file; of an object, also what
                         identifies it */
    size_t stored_bytes;
    const struct rp_remote *remote; /* NULL: it is a file */
    uint32_t source;
    enum rp_manifest_origin origin;
    bool was_read;        /* all its tokens, by this build */
    bool has_identity;    /* of an object: the server identifies it, its .idx and its mask */
    bool has_new_content; /* of an object: one of these differs from the older manifest */
    const struct rp_manifest_segment *older; /* NULL: it has no such shard */
    uint32_t older_shard;
    uint64_t bytes, mtime_ns;         /* at open; of an object, a hash of its identity */
    struct rp_manifest_beside beside; /* likewise */
    struct rp_manifest_record record;
    struct rp_tokenizer_id tokenizer;
    uint64_t spans;
    uint64_t first_document, first_span; /* in the segment, like the places in the record */
};

/* The shards of a source that are written, and the segment for them. */
struct rp_build_source {
    uint64_t first, count; /* among the build's shards */
    struct rp_manifest_shape shape;
    struct rp_manifest_parts parts;
    uint64_t offset; /* in the file */
    uint8_t *data;   /* mapped, for writing */
    struct rp_hash128 root;
    struct rp_fingerprint fingerprint;              /* of all its shards */
    uint64_t documents, tokens, token_bytes, bytes; /* likewise */
    uint32_t shards, widest;
    char found_mask[64];
    struct rp_tokenizer_known tokenizer;
};

struct rp_manifest_build {
    struct rp_manifest_build_options options;
    struct rp_manifest_paths paths;
    struct rp_manifest *older; /* NULL: there is none that counts */
    bool appends;              /* to it; else it is replaced */
    bool keeps_texts;          /* and nothing was declared that it does not say */
    char why[320];
    char *work; /* the folder */
    int work_fd;
    struct rp_build_shard *shards;
    uint64_t shard_count;
    struct rp_remote *remotes; /* of the shards that are objects, in their order */
    size_t remote_count;
    struct rp_build_source *sources;
    /* the file that is written */
    struct rp_new_file file; /* not published where it appends */
    int fd;
    uint8_t *map;
    uint64_t map_at, map_bytes; /* in the file */
};

/** The sidecar of a shard in PATH.work; the caller frees it. NULL when out of memory. */
char *rp_build_work_path(const struct rp_manifest_build *build, const struct rp_build_shard *shard);

/* beside.c */

/** Take the times of the files beside a token file. False: there is no memory for their names. */
RP_MUST_CHECK bool rp_build_look_beside(struct rp_manifest_beside *beside, const char *token_path,
                                        const struct rp_mask_choice *mask, const char *index_dir);

/** The same for all shards that are objects in stores. */
RP_MUST_CHECK int rp_build_look_beside_objects(struct rp_manifest_build *build,
                                               struct rp_error *error);

#endif
