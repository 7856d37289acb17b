/* SPDX-License-Identifier: Apache-2.0 */
/* place — where the entries of each shard go, and the file with room for them
 * (build.h).
 *
 * All segments of a build lie one after another in one mapping of the file, whose blocks were taken
 * from the disk before, so that a full disk is an error here and not a signal later. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "corpus/manifest/build_struct.h"

static int fail_errno(const struct rp_manifest_build *build, const char *what,
                      struct rp_error *error)
{
    int number = errno;
    return rp_fail(error, -number, NULL, "%s: %s: %s", build->options.path, what, strerror(number));
}

/* All shards of a source have the same mask, or none has. */
static int take_mask(struct rp_manifest_build *build, uint32_t s, const char *path,
                     const struct rp_manifest_record *record, bool is_first, struct rp_error *error)
{
    char found[sizeof build->sources[s].found_mask] = "";
    char *mask = build->sources[s].found_mask;
    if (record->mask.name[0])
        rp_mask_text(&record->mask, found, sizeof found);
    if (is_first)
        memcpy(mask, found, sizeof found);
    if (!strcmp(mask, found))
        return 0;
    return rp_fail(error, -RP_E_MISMATCH,
                   "index all its shards with one mask (`mask:` in the configuration), or set "
                   "mask: none",
                   "%s: mask: expected `%s`, as of the first shard of the source, found `%s`", path,
                   mask, found);
}

/* Take over what the older manifest has of a source that is appended to. */
static void begin_source(struct rp_manifest_build *build, uint32_t s)
{
    struct rp_build_source *source = &build->sources[s];
    if (!build->appends)
        return;
    const struct rp_manifest_source *older = &build->older->sources[s];
    source->documents = older->documents;
    source->tokens = older->tokens;
    source->token_bytes = older->token_bytes;
    source->bytes = older->bytes;
    source->shards = older->shards;
    source->widest = older->widest;
    if (rp_ids_know_tokenizer(&older->tokenizer))
        source->tokenizer = (struct rp_tokenizer_known){older->tokenizer,
                                                        build->options.sources[s].name};
    snprintf(source->found_mask, sizeof source->found_mask, "%s",
             older->texts[RP_MANIFEST_FOUND_MASK]);
}

/* Where each shard's entries go in the segment. */
static int place_source(struct rp_manifest_build *build, uint32_t s, struct rp_error *error)
{
    struct rp_build_source *source = &build->sources[s];
    struct rp_manifest_shape *shape = &source->shape;
    const struct rp_source_spec *spec = &build->options.sources[s];
    int code = 0;
    begin_source(build, s);
    for (uint64_t i = 0; i < source->count && code == 0; i++) {
        struct rp_build_shard *shard = &build->shards[source->first + i];
        struct rp_manifest_record *record = &shard->record;
        uint32_t width = rp_token_width(record->type);
        code = take_mask(build, s, shard->path, record, source->shards == 0, error);
        if (code == 0 && rp_ids_know_tokenizer(&shard->tokenizer))
            code = rp_ids_take_tokenizer(&source->tokenizer, &shard->tokenizer, spec->name,
                                         shard->path, error);
        record->first_block = shape->blocks;
        record->path_at = shape->path_bytes;
        shard->first_document = shape->documents;
        shard->first_span = shape->spans;
        shape->documents += record->documents;
        shape->spans += shard->spans;
        shape->blocks += rp_div_up(record->bytes, RP_BLOCK_BYTES);
        shape->path_bytes += shard->stored_bytes;
        shape->shards++;
        shape->objects += shard->remote != NULL;
        source->documents += record->documents;
        source->tokens += record->tokens;
        source->token_bytes += record->tokens * width;
        source->bytes += record->bytes;
        source->widest = (uint32_t)rp_max_u64(source->widest, width);
        source->shards++;
    }
    shape->has_spans = source->found_mask[0] != 0;
    if (code == 0 && spec->drop_unmasked && !shape->has_spans)
        code = rp_fail_context(error, rp_mask_fail_drop(error), "source `%s`", spec->name);
    if (code == 0 && (source->documents == 0 || source->tokens == 0))
        code = rp_fail(error, -RP_E_EMPTY, "`ringpack inspect` on its shards shows what they hold",
                       "source `%s`: expected documents with tokens, found %" PRIu64
                       " documents with %" PRIu64 " tokens",
                       spec->name, source->documents, source->tokens);
    if (code == 0 && !rp_manifest_find_parts(shape, &source->parts))
        code = rp_fail(error, -RP_E_RESOURCE, NULL, "%s: too many documents", build->options.path);
    return code;
}

static int open_file(struct rp_manifest_build *build, struct rp_error *error)
{
    const char *path = build->options.path;
    if (!build->appends) {
        int code = rp_new_file_open(&build->file, path, error);
        build->fd = build->file.fd;
        return code;
    }
    build->fd = open(path, O_RDWR | O_CLOEXEC);
    if (build->fd < 0)
        return fail_errno(build, "cannot be opened for writing", error);
    /* what an append has left that did not finish; nobody has read it */
    return ftruncate(build->fd, (off_t)build->older->end) < 0
               ? fail_errno(build, "cannot be truncated", error)
               : 0;
}

static int map_file(struct rp_manifest_build *build, struct rp_error *error)
{
    if (build->map_bytes == 0)
        return 0;
    int number = posix_fallocate(build->fd, (off_t)build->map_at, (off_t)build->map_bytes);
    if (number != 0)
        return rp_fail(error, -number, "make room, and run the command again: it goes on",
                       "%s: no room for %" PRIu64 " bytes: %s", build->options.path,
                       build->map_bytes, strerror(number));
    void *map = mmap(NULL, (size_t)build->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, build->fd,
                     (off_t)build->map_at);
    if (map == MAP_FAILED)
        return fail_errno(build, "cannot be mapped", error);
    build->map = map;
    return 0;
}

int rp_manifest_build_place(struct rp_manifest_build *build, struct rp_error *error)
{
    int code = 0;
    for (uint32_t s = 0; s < build->options.source_count && code == 0; s++)
        code = place_source(build, s, error);
    if (code < 0 || (build->appends && build->keeps_texts && build->shard_count == 0))
        return code;
    code = open_file(build, error);
    build->map_at = build->appends ? rp_align_up(build->older->end, RP_BLOCK_BYTES)
                                   : RP_BLOCK_BYTES;
    for (uint32_t s = 0; s < build->options.source_count; s++) {
        struct rp_build_source *source = &build->sources[s];
        if (source->count == 0)
            continue;
        build->map_bytes = rp_align_up(build->map_bytes, RP_BLOCK_BYTES);
        source->offset = build->map_at + build->map_bytes;
        build->map_bytes += rp_manifest_parts_bytes(&source->parts);
    }
    if (code == 0)
        code = map_file(build, error);
    for (uint32_t s = 0; s < build->options.source_count && code == 0; s++)
        if (build->sources[s].count > 0)
            build->sources[s].data = build->map + (build->sources[s].offset - build->map_at);
    return code;
}
