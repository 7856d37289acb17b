/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar.c — finding and opening the index of one shard (index.h). */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "corpus/index/index.h"
#include "corpus/readers.h"

static char *path_of(const char *token_path, const char *index_dir, const char *suffix)
{
    if (!index_dir)
        return rp_asprintf("%s%s", token_path, suffix);
    /* only the directory is resolved: the file may be missing */
    char *directory = rp_path_directory(token_path);
    char *resolved = directory ? realpath(directory, NULL) : NULL;
    const char *base = rp_path_name(token_path);
    char *absolute = rp_asprintf("%s/%s", resolved ? resolved : directory ? directory : "", base);
    char *path = NULL;
    if (absolute)
        path = rp_asprintf("%s/%s-%08" PRIx32 "%s", index_dir, base,
                           (uint32_t)rp_hash64(absolute, strlen(absolute)), suffix);
    free(absolute);
    free(resolved);
    free(directory);
    return path;
}

char *rp_sidecar_path(const char *token_path, const char *index_dir)
{
    return path_of(token_path, index_dir, RP_INDEX_SUFFIX);
}

/* Take the record, if the index has one source, one segment and one shard, and the record fits
 * them. */
static int take_record(const struct rp_index *index, struct rp_index_record *record,
                       struct rp_error *error)
{
    const struct rp_index_segment *segment = &index->segments[0];
    if (index->shard_count != 1 || index->sources[0].text_count != RP_INDEX_PATTERNS)
        return rp_fail(error, -RP_E_FORMAT, "name it in the config (`index: FILE`)",
                       "%s: it is the index of a corpus, not of one file", index->path);
    if (!rp_index_get_record(segment, 0, record, NULL))
        return rp_index_fail_damaged(index, "record of the shard", error);
    const struct rp_reader *reader = rp_readers_find(record->format);
    bool fits = record->documents == segment->shape.table.documents &&
                record->tokens == segment->tokens && record->first_block == 0 &&
                segment->shape.blocks == rp_div_up(record->bytes, RP_BLOCK_BYTES) &&
                segment->shape.table.has_extents == (reader->walk != NULL);
    return fits ? 0 : rp_index_fail_damaged(index, "record of the shard", error);
}

int rp_sidecar_open(struct rp_index **index_out, struct rp_index_record *record, const char *path,
                    const char *token_path, struct rp_error *error)
{
    const struct rp_index_open_options options = {.path = path, .token_path = token_path};
    int code = rp_index_open(index_out, &options, error);
    if (code == 0)
        code = take_record(*index_out, record, error);
    if (code < 0) {
        rp_index_close(*index_out);
        *index_out = NULL;
    }
    return code;
}

/* 1: the sidecar is open. 0: no such file. Negative: it is bad, or of an older version. */
static int open_at(struct rp_index **index_out, struct rp_index_record *record,
                   const char *token_path, const char *index_dir, const char *suffix,
                   struct rp_error *error)
{
    char *path = path_of(token_path, index_dir, suffix);
    if (!path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", token_path);
    int code = 0;
    if (access(path, F_OK) == 0) {
        code = rp_sidecar_open(index_out, record, path, token_path, error);
        code = code < 0 ? code : 1;
    }
    free(path);
    return code;
}

/* A sidecar of an older version is refused, not ignored: without one, a run would not notice that
 * its tokens changed. */
int rp_sidecar_find(struct rp_index **index_out, struct rp_index_record *record,
                    const char *token_path, const char *index_dir, struct rp_error *error)
{
    static const char *const suffixes[] = {RP_INDEX_SUFFIX, RP_INDEX_SUFFIX_OLD};
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(suffixes) && code == 0; i++) {
        if (index_dir)
            code = open_at(index_out, record, token_path, index_dir, suffixes[i], error);
        if (code == 0)
            code = open_at(index_out, record, token_path, NULL, suffixes[i], error);
    }
    return code;
}
