/* SPDX-License-Identifier: Apache-2.0 */
/* adding.c — see adding.h. The documents of a source and the lists of its files are walked
 * together, once to compare them and once to write. */
#include "column/adding.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "corpus/sides.h"
#include "interrupt.h"

static void begin(struct rp_adding *adding)
{
    rp_map_close(&adding->lengths);
    adding->lengths = (struct rp_map){0};
    adding->file = 0;
    adding->document = adding->list = adding->row = 0;
}

/* The length of the next list. Returns 1, or 0 after the last one. */
static int next_list(struct rp_adding *adding, uint64_t *length, struct rp_error *error)
{
    while (adding->file < adding->file_count &&
           adding->list == adding->files[adding->file].documents) {
        rp_map_close(&adding->lengths);
        adding->lengths = (struct rp_map){0};
        adding->file++;
        adding->list = adding->row = 0;
    }
    if (adding->file == adding->file_count)
        return 0;
    const struct rp_values *file = &adding->files[adding->file];
    uint64_t bytes = file->lengths_at + 8 * file->documents;
    int code = adding->lengths.data
                   ? 0
                   : rp_map_file(&adding->lengths, file->fd, bytes, file->path, error);
    *length = code < 0 ? 0
                       : rp_load_u64(adding->lengths.data + file->lengths_at + 8 * adding->list);
    if (code == 0 && *length > file->rows - adding->row)
        code = rp_fail(error, -RP_E_CORRUPT, "type the same command again",
                       "%s: its lists have more values than there are", file->path);
    return code < 0 ? code : 1;
}

/* A document and its list: the values of its tokens but for some before and after them. */
struct listed {
    struct rp_extent extent;
    uint64_t before, values, after;
};

static bool fits(const struct rp_adding *adding, struct listed *listed)
{
    uint64_t tokens = listed->extent.tokens, values = listed->values, more = tokens - values;
    bool is_one = adding->choice->inserted == RP_INSERTED_EOS ||
                  adding->choice->inserted == RP_INSERTED_BOS;
    bool is_fine = more == 0 || (more == 1 && is_one) ||
                   (more == 2 && adding->choice->inserted == RP_INSERTED_BOTH);
    if (values > tokens || !is_fine)
        return false;
    listed->before = more == 2 || (more == 1 && adding->choice->inserted == RP_INSERTED_BOS);
    listed->after = more - listed->before;
    return true;
}

static int fail_length(const struct rp_adding *adding, const struct listed *listed,
                       struct rp_error *error)
{
    const struct rp_extent *extent = &listed->extent;
    uint64_t values = listed->values;
    bool is_short = values < extent->tokens && extent->tokens - values <= 2;
    return rp_fail(error, -RP_E_MISMATCH,
                   is_short ? "give a value for each token; if `ringpack convert` put an EOS, a "
                              "BOS or both around the documents: --inserted eos, bos or both"
                            : "give a value for each token of the document",
                   "%s: list %" PRIu64 ": expected %" PRIu64 " values, as document %" PRIu64
                   " of %s has tokens, found %" PRIu64,
                   adding->files[adding->file].path, adding->list, extent->tokens, adding->document,
                   rp_corpus_shard(adding->corpus, extent->shard)->path, values);
}

static int fail_count(const struct rp_adding *adding, struct rp_error *error)
{
    uint64_t lists = 0;
    for (uint32_t i = 0; i < adding->file_count; i++)
        lists += adding->files[i].documents;
    return rp_fail(
        error, -RP_E_MISMATCH, "give a list for each document of the source, in their order",
        "column `%s`: expected %" PRIu64 " lists, as the source `%s` has documents, found %" PRIu64,
        adding->choice->column.name, rp_source_documents(adding->source),
        rp_source_name(adding->source), lists);
}

/* The next document. Returns 1, or 0 if it is of another shard than `shard`, or absent. */
static int next_document(struct rp_adding *adding, uint32_t shard, struct listed *listed,
                         struct rp_error *error)
{
    if (adding->document == rp_source_documents(adding->source))
        return 0;
    int code = rp_source_extent(adding->source, adding->document, &listed->extent, error);
    if (code < 0 || (shard != UINT32_MAX && listed->extent.shard != shard))
        return code < 0 ? code : 0;
    code = next_list(adding, &listed->values, error);
    if (code == 0)
        return fail_count(adding, error);
    if (code > 0 && !fits(adding, listed))
        return fail_length(adding, listed, error);
    if (code > 0 && adding->document % 4096 == 0)
        code = rp_interrupt_check("each file is whole or as it was", error);
    return code < 0 ? code : 1;
}

static void step(struct rp_adding *adding, uint64_t values)
{
    adding->document++;
    adding->list++;
    adding->row += values;
}

int rp_adding_check_lists(struct rp_adding *adding, struct rp_error *error)
{
    struct rp_source_range range = rp_source_range(adding->source);
    struct listed listed;
    if (range.first != 0 || range.end != range.all)
        return rp_fail(error, -RP_E_USAGE, "leave `documents` out of the config for this command",
                       "source `%s`: lists are of all of its %" PRIu64
                       " documents, and it uses %" PRIu64 " of them",
                       rp_source_name(adding->source), range.all, range.end - range.first);
    int code;
    begin(adding);
    while ((code = next_document(adding, UINT32_MAX, &listed, error)) > 0)
        step(adding, listed.values);
    if (code == 0)
        code = next_list(adding, &listed.values, error);
    if (code > 0)
        code = fail_count(adding, error);
    begin(adding);
    return code;
}

/* Entries of tokens that have no value. */
static int put_zeros(const struct rp_adding *adding, struct rp_side_writer *writer, uint64_t count,
                     struct rp_error *error)
{
    uint64_t bytes = count * writer->type.bytes;
    int code = 0;
    memset(adding->buffer, 0, (size_t)rp_min_u64(bytes, RP_COLUMN_BUFFER_BYTES));
    while (bytes > 0 && code == 0) {
        size_t some = (size_t)rp_min_u64(bytes, RP_COLUMN_BUFFER_BYTES);
        code = rp_sidefile_add(writer, adding->buffer, some, error);
        bytes -= some;
    }
    return code;
}

static int put_document(const struct rp_adding *adding, struct rp_side_writer *writer,
                        const struct listed *listed, struct rp_error *error)
{
    uint32_t width = writer->type.bytes;
    int code = put_zeros(adding, writer, listed->before, error);
    if (code == 0)
        code = rp_sidefile_add(writer, adding->lengths.data + adding->row * width,
                               (size_t)listed->values * width, error);
    return code == 0 ? put_zeros(adding, writer, listed->after, error) : code;
}

int rp_adding_write_lists(struct rp_adding *adding, struct rp_side_writer *writer, uint32_t i,
                          struct rp_error *error)
{
    struct listed listed;
    const struct rp_extent *extent = &listed.extent;
    uint64_t entries, token_offset, done = 0;
    int code = rp_sides_count_entries(adding->corpus, adding->first + i,
                                      adding->choice->column.name, &entries, &token_offset, error);
    while (code == 0 && (code = next_document(adding, adding->first + i, &listed, error)) > 0) {
        uint64_t entry = (extent->byte_offset - token_offset) / extent->width;
        if (extent->byte_offset < token_offset || entry < done || entry + extent->tokens > entries)
            return rp_fail(error, -RP_E_FORMAT, "give the values as one .npy, a row for each token",
                           "%s: its documents are not in the order of its tokens",
                           rp_corpus_shard(adding->corpus, extent->shard)->path);
        code = put_zeros(adding, writer, entry - done, error);
        if (code == 0)
            code = put_document(adding, writer, &listed, error);
        done = entry + extent->tokens;
        step(adding, listed.values);
    }
    return code == 0 ? put_zeros(adding, writer, entries - done, error) : code;
}
