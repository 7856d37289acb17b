/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/sides.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "corpus/corpus_struct.h"
#include "corpus/side_object.h"

const struct rp_sides *rp_corpus_sides(const struct rp_corpus *corpus)
{
    return &corpus->sides;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The columns of a shard that are there, for a message. */
static void list_columns(const char *token_path, char *text, size_t bytes)
{
    char *pattern = rp_sidefile_path(token_path, "*"), *folder = rp_path_directory(token_path);
    const char *slash = pattern ? strrchr(pattern, '/') : NULL, *base = slash ? slash + 1 : pattern;
    size_t stem = base ? strlen(base) - strlen("*.col") : 0, used = 0;
    DIR *directory = folder && base ? opendir(folder) : NULL;
    snprintf(text, bytes, "none");
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        size_t length = strlen(entry->d_name);
        if (length <= stem + 4 || strncmp(entry->d_name, base, stem) != 0 ||
            strcmp(entry->d_name + length - 4, ".col") != 0 || used + length + 3 > bytes)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%.*s", used ? ", " : "",
                                 (int)(length - 4 - stem), entry->d_name + stem);
    }
    if (directory)
        closedir(directory);
    free(folder);
    free(pattern);
}

static int fail_missing(const struct rp_shard *shard, const char *name, struct rp_error *error)
{
    char has[256];
    if (shard->url)
        return rp_fail(error, -RP_E_CONFIG,
                       "`ringpack column -c CONFIG --column NAME=FILE.npy --output DIR` makes it; "
                       "copy its files next to the shards; every shard of every source needs one",
                       "%s: the store has no column `%s` of it, or does not disclose it",
                       shard->path, name);
    list_columns(shard->path, has, sizeof has);
    return rp_fail(error, -RP_E_CONFIG,
                   "`ringpack column -c CONFIG --column NAME=FILE.npy` makes it; every shard of "
                   "every source needs one",
                   "%s: expected a column `%s`, found %s", shard->path, name, has);
}

/* The byte of the first token, if the tokens of the file are one run. */
static int find_token_offset(const struct rp_corpus *corpus, uint32_t number, const char *name,
                             uint64_t *offset, struct rp_error *error)
{
    const struct rp_shard *shard = rp_corpus_shard(corpus, number);
    enum rp_format format = RP_FORMAT_AUTO;
    if (!shard->segment || (corpus->index && !rp_listed_layout(corpus, number, &format, offset)))
        return rp_fail(error, -RP_E_CORRUPT, "run `ringpack index -c CONFIG` again",
                       "%s: the record of a shard is damaged", shard->path);
    if (!corpus->index) {
        format = corpus->shards[number].found.format;
        *offset = corpus->shards[number].layout.token_offset;
    }
    bool is_flat = format == RP_FORMAT_RAW || format == RP_FORMAT_NPY || format == RP_FORMAT_LLMC ||
                   format == RP_FORMAT_DATATROVE || format == RP_FORMAT_OLMO;
    *offset = is_flat ? *offset : 0;
    if (is_flat || format == RP_FORMAT_MEGATRON)
        return 0;
    return rp_fail(error, -RP_E_CONFIG, "`ringpack convert` makes Megatron shards of these files",
                   "%s: column `%s`: expected one run of tokens in a file, as in megatron, raw, "
                   "npy, llmc, datatrove and olmo, found format %s",
                   shard->path, name, rp_format_name(format));
}

static uint64_t entries_of(const struct rp_shard *shard, uint64_t token_offset)
{
    return (shard->bytes - token_offset) / rp_token_width(shard->type);
}

int rp_sides_count_entries(const struct rp_corpus *corpus, uint32_t shard, const char *name,
                           uint64_t *entries, uint64_t *token_offset, struct rp_error *error)
{
    int code = find_token_offset(corpus, shard, name, token_offset, error);
    *entries = code < 0 ? 0 : entries_of(rp_corpus_shard(corpus, shard), *token_offset);
    return code;
}

static int check_entries(const struct rp_side_file *file, const struct rp_shard *shard,
                         uint64_t token_offset, struct rp_error *error)
{
    uint64_t expected = entries_of(shard, token_offset);
    if (file->entries == expected)
        return 0;
    return rp_fail(error, -RP_E_MISMATCH,
                   "a column has an entry for each token of its token file, separators included: "
                   "make it again with `ringpack column`",
                   "%s: expected %" PRIu64 " entries, as %s has tokens, found %" PRIu64, file->path,
                   expected, shard->path, file->entries);
}

static int take_type(struct rp_side_info *info, const struct rp_side_file *file, uint32_t shard,
                     const struct rp_side_file *first, struct rp_error *error)
{
    char expected[RP_SIDE_TYPE_BYTES], found[RP_SIDE_TYPE_BYTES];
    if (shard == 0)
        info->type = file->type;
    info->file_bytes += file->shard.url ? 0 : file->shard.bytes;
    if (memcmp(&info->type, &file->type, sizeof info->type) == 0)
        return 0;
    rp_sidefile_type_text(&info->type, expected);
    rp_sidefile_type_text(&file->type, found);
    return rp_fail(error, -RP_E_MISMATCH, "make the columns of all shards with one type",
                   "%s: expected %s, as in %s, found %s", file->path, expected, first->path, found);
}

static int fail_tokenizer(const char *path, const struct rp_tokenizer_id *id,
                          const struct rp_tokenizer_id *expected, const char *owner,
                          const char *owner_name, struct rp_error *error)
{
    char texts[2][RP_TOKENIZER_TEXT_BYTES];
    return rp_fail(error, -RP_E_MISMATCH,
                   "write ids of the tokenizer of the tokens: `ringpack column … --tokenizer T "
                   "--replace`; a column that is meant to have other ids is written without "
                   "--tokenizer",
                   "%s: tokenizer: expected %s, as of %s `%s`, found %s", path,
                   rp_ids_tokenizer_text(expected, texts[0]), owner, owner_name,
                   rp_ids_tokenizer_text(id, texts[1]));
}

int rp_sides_check_tokenizer(const struct rp_corpus *corpus, const struct rp_tokenizer_id *id,
                             const char *path, struct rp_error *error)
{
    const struct rp_tokenizer_known *known = &corpus->tokenizer;
    bool are_known = rp_ids_know_tokenizer(id) && rp_ids_know_tokenizer(&known->id);
    if (!are_known || rp_hash128_equal(id->hash, known->id.hash))
        return 0;
    return fail_tokenizer(path, id, &known->id, "source", known->source, error);
}

/* Also without a known tokenizer of the tokens, a run has columns of one. */
static int take_tokenizer(struct rp_sides *sides, const struct rp_corpus *corpus,
                          struct rp_side_info *info, const struct rp_side_file *file,
                          struct rp_error *error)
{
    const struct rp_tokenizer_id *id = &file->tokenizer;
    if (!rp_ids_know_tokenizer(id))
        return 0;
    sides->declares = sides->declares ? sides->declares : file;
    info->tokenizer = *id;
    int code = rp_sides_check_tokenizer(corpus, id, file->path, error);
    if (code == 0 && !rp_hash128_equal(id->hash, sides->declares->tokenizer.hash))
        code = fail_tokenizer(file->path, id, &sides->declares->tokenizer, "column",
                              sides->declares->path, error);
    return code;
}

/* The shards that are objects, all of them together. */
static int open_objects(struct rp_sides *sides, const struct rp_corpus *corpus, uint32_t c,
                        const struct rp_corpus_spec *spec, struct rp_error *error)
{
    const char *name = sides->columns[c].name;
    struct rp_side_object *objects = rp_calloc(sides->shards, sizeof *objects);
    size_t count = 0;
    for (uint32_t i = 0; objects && i < sides->shards; i++)
        if (rp_corpus_shard(corpus, i)->url)
            objects[count++] = (struct rp_side_object){
                .token_url = rp_corpus_shard(corpus, i)->url,
                .file = &sides->files[(size_t)c * sides->shards + i]};
    int code = objects ? 0 : rp_fail(error, -ENOMEM, NULL, "no memory for column `%s`", name);
    if (code == 0 && count)
        code = rp_corpus_gate_pass(spec->gate, error);
    if (code == 0 && count)
        code = rp_sideobjects_open(objects, count, name, spec->cache_dir, error);
    for (size_t i = 0, at = 0; code < 0 && at < count; i++) {
        const struct rp_shard *shard = rp_corpus_shard(corpus, (uint32_t)i);
        if (shard->url && objects[at++].is_missing) {
            code = fail_missing(shard, name, error);
            break;
        }
    }
    free(objects);
    return code;
}

static int open_file(struct rp_side_file *file, const struct rp_shard *shard, const char *name,
                     struct rp_error *error)
{
    int code = rp_sidefile_open(file, shard->path, name, error);
    if (code < 0 && file->path && access(file->path, F_OK) != 0 && errno == ENOENT)
        return fail_missing(shard, name, error);
    return code;
}

static int open_column(struct rp_sides *sides, const struct rp_corpus *corpus, uint32_t c,
                       const struct rp_corpus_spec *spec, struct rp_error *error)
{
    struct rp_side_info *info = &sides->columns[c];
    struct rp_side_file *files = sides->files + (size_t)c * sides->shards;
    struct rp_hasher hasher;
    int code = 0;
    for (uint32_t i = 0; i < sides->shards && code == 0; i++)
        code = find_token_offset(corpus, i, info->name, &sides->token_offset[i], error);
    if (code == 0)
        code = open_objects(sides, corpus, c, spec, error);
    rp_hasher_begin(&hasher);
    for (uint32_t i = 0; i < sides->shards && code == 0; i++) {
        const struct rp_shard *shard = rp_corpus_shard(corpus, i);
        if (!shard->url)
            code = open_file(&files[i], shard, info->name, error);
        files[i].shard.source = shard->source;
        if (code == 0)
            code = check_entries(&files[i], shard, sides->token_offset[i], error);
        if (code == 0)
            code = take_type(info, &files[i], i, files, error);
        if (code == 0)
            code = take_tokenizer(sides, corpus, info, &files[i], error);
        rp_hasher_add(&hasher, &files[i].content, sizeof files[i].content);
    }
    info->content = rp_hasher_finish(&hasher);
    return code;
}

/* A column of documents: one kind of number in all sources. */
static int open_numbers(struct rp_sides *sides, const struct rp_corpus *corpus, uint32_t c,
                        struct rp_error *error)
{
    struct rp_side_info *info = &sides->columns[c];
    struct rp_column **numbers = sides->numbers + (size_t)(c - sides->count) * sides->sources;
    struct rp_hasher hasher;
    int code = 0;
    rp_hasher_begin(&hasher);
    for (uint32_t s = 0; s < sides->sources && code == 0; s++) {
        struct rp_hash128 root;
        uint64_t first;
        code = rp_column_open(&numbers[s], &corpus->sources[s], info->name, error);
        if (code < 0)
            break;
        bool is_real = rp_column_kind(numbers[s]) == RP_COLUMN_REAL;
        uint32_t dtype = is_real ? RP_DTYPE_F64 : RP_DTYPE_I64;
        if (s > 0 && dtype != info->type.dtype)
            return rp_fail(error, -RP_E_CONFIG,
                           "annotate all sources with integers, or all with real numbers",
                           "document column `%s`: source `%s` has %s, and source `%s` has %s",
                           info->name, corpus->sources[0].name, rp_column_type(numbers[0]),
                           corpus->sources[s].name, rp_column_type(numbers[s]));
        info->type = (struct rp_side_type){dtype, 1, 8};
        for (uint32_t g = 0; rp_column_root(numbers[s], g, &first, &root); g++)
            rp_hasher_add(&hasher, &root, sizeof root);
    }
    info->content = rp_hasher_finish(&hasher);
    return code;
}

static int make_tables(struct rp_sides *sides, struct rp_error *error)
{
    size_t numbers = (size_t)(sides->all - sides->count) * sides->sources;
    sides->files = rp_calloc((size_t)sides->count * sides->shards + 1, sizeof *sides->files);
    sides->token_offset = rp_calloc(sides->shards + 1u, sizeof *sides->token_offset);
    sides->numbers = rp_calloc(numbers + 1, sizeof(struct rp_column *));
    return sides->files && sides->token_offset && sides->numbers
               ? 0
               : rp_fail(error, -ENOMEM, NULL, "no memory for the columns of the corpus");
}

int rp_sides_open(struct rp_sides *sides, const struct rp_corpus *corpus,
                  const struct rp_corpus_spec *corpus_spec, struct rp_error *error)
{
    const struct rp_sides_spec *spec = corpus_spec->sides;
    *sides = (struct rp_sides){.all = spec->count, .sources = corpus->source_count};
    if (spec->count == 0)
        return 0;
    for (uint32_t c = 0; c < spec->count; c++) {
        struct rp_side_info *info = &sides->columns[c];
        snprintf(info->name, sizeof info->name, "%s", spec->names[c]);
        info->of = (enum rp_side_of)spec->of[c];
        sides->count += info->of != RP_SIDE_OF_DOCUMENT;
    }
    sides->shards = sides->count ? corpus->shard_count : 0;
    int code = make_tables(sides, error);
    for (uint32_t c = 0; c < spec->count && code == 0; c++)
        code = c < sides->count ? open_column(sides, corpus, c, corpus_spec, error)
                                : open_numbers(sides, corpus, c, error);
    return code;
}

void rp_sides_close(struct rp_sides *sides)
{
    for (size_t i = 0; sides->files && i < (size_t)sides->count * sides->shards; i++)
        rp_sidefile_close(&sides->files[i]);
    for (size_t i = 0; sides->numbers && i < (size_t)(sides->all - sides->count) * sides->sources;
         i++)
        rp_column_close(sides->numbers[i]);
    free(sides->files);
    free(sides->token_offset);
    free(sides->numbers);
    *sides = (struct rp_sides){.count = 0};
}

/* ---- queries --------------------------------------------------------------------------------- */

int rp_sides_extent(const struct rp_corpus *corpus, uint32_t c, const struct rp_extent *extent,
                    struct rp_extent *out, struct rp_error *error)
{
    const struct rp_sides *sides = &corpus->sides;
    RP_DASSERT(c < sides->count && extent->shard < sides->shards);
    const struct rp_side_file *file = &sides->files[c * sides->shards + extent->shard];
    uint64_t bytes = extent->byte_offset - sides->token_offset[extent->shard];
    uint64_t entry = bytes / extent->width, width = file->type.bytes;
    if (extent->byte_offset < sides->token_offset[extent->shard] || bytes % extent->width != 0 ||
        extent->tokens > file->entries || entry > file->entries - extent->tokens)
        return rp_fail(error, -RP_E_CORRUPT, "restore the index of the shard",
                       "%s: a document of %" PRIu64 " tokens begins at byte %" PRIu64
                       " of its token file, which is no place of one of the %" PRIu64 " entries",
                       file->path, extent->tokens, extent->byte_offset, file->entries);
    *out = (struct rp_extent){.shard = (1 + c) * sides->shards + extent->shard,
                              .width = (uint32_t)width,
                              .byte_offset = RP_SIDE_DATA_OFFSET + entry * width,
                              .tokens = extent->tokens};
    return 0;
}

void rp_sides_tokens_of(const struct rp_corpus *corpus, uint32_t *shard, uint64_t *first,
                        uint64_t *last)
{
    const struct rp_sides *sides = &corpus->sides;
    if (*shard < corpus->shard_count)
        return;
    const struct rp_side_file *file = &sides->files[*shard - corpus->shard_count];
    *shard = (*shard - corpus->shard_count) % sides->shards;
    uint64_t token_bytes = rp_token_width(rp_corpus_shard(corpus, *shard)->type);
    uint64_t from = rp_max_u64(*first, RP_SIDE_DATA_OFFSET) - RP_SIDE_DATA_OFFSET;
    uint64_t to = rp_max_u64(*last, RP_SIDE_DATA_OFFSET) - RP_SIDE_DATA_OFFSET;
    to = rp_min_u64(rp_div_up(to, file->type.bytes), file->entries);
    from = rp_min_u64(from / file->type.bytes, to);
    *first = sides->token_offset[*shard] + from * token_bytes;
    *last = sides->token_offset[*shard] + to * token_bytes;
}

int rp_sides_number(const struct rp_corpus *corpus, uint32_t c, uint32_t source, uint64_t document,
                    uint64_t *out, struct rp_error *error)
{
    const struct rp_sides *sides = &corpus->sides;
    RP_DASSERT(c >= sides->count && c < sides->all);
    const struct rp_column *column = sides->numbers[(c - sides->count) * sides->sources + source];
    int code = rp_column_values(column, &document, 1, out, error);
    if (code == 0 && rp_column_kind(column) == RP_COLUMN_UNSIGNED && *out > INT64_MAX)
        code = rp_fail(error, -RP_E_FORMAT,
                       "write smaller numbers: `ringpack annotate` with --replace, and the numbers "
                       "as i64 or f64",
                       "document column `%s`: source `%s`, document %" PRIu64 " has %" PRIu64
                       ": batches have int64, so expected at most %" PRId64,
                       sides->columns[c].name, corpus->sources[source].name, document, *out,
                       INT64_MAX);
    return code;
}

void rp_sides_describe(const struct rp_sides *sides, struct rp_side out[RP_SIDES_MAX])
{
    for (uint32_t c = 0; c < sides->all; c++) {
        const struct rp_side_info *info = &sides->columns[c];
        out[c] = (struct rp_side){.dtype = info->type.dtype,
                                  .count = info->type.count,
                                  .bytes = info->type.bytes,
                                  .of = info->of};
        memcpy(out[c].name, info->name, sizeof out[c].name);
    }
}

int rp_sides_verify(const struct rp_sides *sides, struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; i < (size_t)sides->count * sides->shards && code == 0; i++)
        code = sides->files[i].url ? rp_sideobject_verify(&sides->files[i], error)
                                   : rp_sidefile_verify(&sides->files[i], error);
    return code;
}
