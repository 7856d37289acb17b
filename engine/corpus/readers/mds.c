/* SPDX-License-Identifier: Apache-2.0 */
/* mds.c — a shard that MDSWriter of mosaicml-streaming wrote, uncompressed:
 *
 *     the table of samples (samples.h)
 *     JSON: the columns (mds_header.c)
 *     samples: u32 size of each column of variable size, then the values of all columns, both in
 *              the order of the JSON
 *     an array: u8 its type, if the encoding has none; if it has no shape, u8 4 * dimensions + w
 *               and the dimensions, of 2^w bytes each; the numbers
 *
 * If the ids are the only column of variable size and are bare, or have a fixed size, the table has
 * their places. Otherwise a few bytes of each sample are read.
 *
 * Invariants: a sample is inside the file, its columns fill it to the last byte, and so do the
 * numbers of an array; any other file is refused. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "corpus/readers/mds.h"
#include "corpus/readers/samples.h"

#define HEADER_BYTES_MAX (1u << 20)
/* The head of an array: its type, and at most seven dimensions. */
#define ARRAY_HEAD_BYTES 64u

struct walking {
    const struct rp_probe *probe;
    const struct rp_reader_options *options;
    struct rp_mds_header header;
    struct rp_samples samples;
    enum rp_token_type type; /* the samples' so far; NONE: not known yet */
};

/* The values of one column in one sample, and the ids among them. */
struct place {
    uint64_t sample;
    uint64_t begin, bytes;
    uint64_t head_bytes; /* bytes of the array in front of its numbers */
    enum rp_token_type type;
    uint64_t tokens;
};

static int fail_damaged(const struct walking *walking, uint64_t sample, const char *expected,
                        struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                   "%s: sample %" PRIu64 ": expected %s", walking->probe->path, sample, expected);
}

/* ---- the place of the column ----------------------------------------------------------------- */

/* Read the sizes at the begin of a sample. *sum is the sum of all, *before of those before the
 * column. */
static int read_sizes(const struct walking *walking, uint64_t begin, struct place *place,
                      uint64_t *before, uint64_t *sum, struct rp_error *error)
{
    const struct rp_mds_header *header = &walking->header;
    uint32_t sizes[RP_MDS_VARIABLE_MAX];
    int code = rp_file_read_at(walking->probe->fd, walking->probe->path, sizes,
                               sizeof *sizes * header->variable, begin, error);
    *before = *sum = 0;
    for (uint32_t i = 0; code == 0 && i < header->variable; i++) {
        uint64_t size = rp_load_u32(&sizes[i]);
        *before += i < header->ids.variable_before ? size : 0;
        *sum += size;
        if (header->ids.is_variable && i == header->ids.variable_before)
            place->bytes = size;
    }
    return code;
}

static int find_column(const struct walking *walking, uint64_t begin, uint64_t end,
                       struct place *place, struct rp_error *error)
{
    const struct rp_mds_header *header = &walking->header;
    const struct rp_mds_column *ids = &header->ids;
    uint64_t sizes = 4 * (uint64_t)header->variable, known = sizes + header->fixed_bytes;
    uint64_t left = end - begin - known, before, sum = left;
    int code = 0;
    if (end - begin < known)
        return fail_damaged(walking, place->sample, "all its columns in it, found fewer bytes",
                            error);
    place->bytes = ids->is_variable ? left : ids->fixed_bytes;
    before = ids->variable_before > 0 ? left : 0;
    if (header->variable > 1)
        code = read_sizes(walking, begin, place, &before, &sum, error);
    if (code == 0 && (sum != left || (header->variable == 0 && left != 0)))
        code = fail_damaged(walking, place->sample, "columns that fill it, found others", error);
    place->begin = begin + sizes + ids->fixed_before + before;
    return code;
}

/* ---- the head of an array -------------------------------------------------------------------- */

/* Read the dimensions; place->tokens is their product. False if they do not end inside `bytes`. */
static bool read_shape(const uint8_t *bytes, uint64_t count, struct place *place)
{
    if (place->head_bytes >= count)
        return false;
    unsigned dimensions = bytes[place->head_bytes] >> 2;
    unsigned width = 1u << (bytes[place->head_bytes] & 3);
    place->head_bytes++;
    place->tokens = 1;
    if (dimensions == 0 || dimensions * width > count - place->head_bytes)
        return false;
    for (unsigned i = 0; i < dimensions; i++, place->head_bytes += width) {
        uint8_t number[8] = {0};
        memcpy(number, bytes + place->head_bytes, width);
        if (!rp_mul_u64(place->tokens, rp_load_u64(number), &place->tokens))
            return false;
    }
    return true;
}

static int read_array_head(const struct walking *walking, struct place *place,
                           struct rp_error *error)
{
    const struct rp_mds_column *ids = &walking->header.ids;
    uint8_t bytes[ARRAY_HEAD_BYTES];
    uint64_t count = rp_min_u64(sizeof bytes, place->bytes);
    int code = rp_file_read_at(walking->probe->fd, walking->probe->path, bytes, (size_t)count,
                               place->begin, error);
    if (code < 0)
        return code;
    if (ids->has_type && count > 0) {
        place->type = rp_mds_type_of(bytes[0]);
        place->head_bytes = 1;
        if (place->type == RP_TOKEN_NONE)
            return fail_damaged(walking, place->sample, "an array of integers, found another type",
                                error);
    }
    return read_shape(bytes, count, place)
               ? 0
               : fail_damaged(walking, place->sample, "an array with one to seven dimensions",
                              error);
}

static int read_array(const struct walking *walking, struct place *place, struct rp_error *error)
{
    const struct rp_mds_column *ids = &walking->header.ids;
    int code = ids->has_shape ? read_array_head(walking, place, error) : 0;
    if (code < 0)
        return code;
    uint64_t width = rp_token_width(place->type), left = place->bytes - place->head_bytes, bytes;
    if (!ids->has_shape)
        place->tokens = left / width;
    return rp_mul_u64(place->tokens, width, &bytes) && bytes == left
               ? 0
               : fail_damaged(walking, place->sample,
                              ids->is_bytes ? "a multiple of the width of a token; is it the right "
                                              "dtype?"
                                            : "as many numbers as the shape of the array says",
                              error);
}

/* ---- the reader ------------------------------------------------------------------------------ */

static int begin(struct walking *walking, enum rp_token_type type, struct rp_sink *sink,
                 struct rp_error *error)
{
    struct rp_layout layout = {.type = type, .eos = RP_EOS_NONE};
    memcpy(layout.column, walking->header.ids.name, sizeof layout.column);
    walking->type = type;
    return rp_sink_begin(sink, &layout, walking->options, error);
}

static int emit(struct walking *walking, struct rp_sink *sink, struct rp_error *error)
{
    struct place place = {.sample = walking->samples.next, .type = walking->type};
    uint64_t first, end;
    int code = rp_samples_next(&walking->samples, &first, &end, error);
    if (code == 0)
        code = find_column(walking, first, end, &place, error);
    if (code == 0)
        code = read_array(walking, &place, error);
    if (code == 0 && walking->type == RP_TOKEN_NONE)
        code = begin(walking, place.type, sink, error);
    if (code == 0 && place.type != walking->type)
        code = rp_readers_convert(walking->probe, "arrays of several types of integers", error);
    return code < 0 ? code
                    : rp_sink_document(sink, place.begin + place.head_bytes, place.tokens, NULL, 0,
                                       error);
}

/* Begin the output now, if the type is known before any sample is read. */
static int begin_typed(struct walking *walking, struct rp_sink *sink, struct rp_error *error)
{
    const struct rp_mds_column *ids = &walking->header.ids;
    enum rp_token_type type = ids->is_bytes ? walking->options->type : ids->type;
    if (ids->is_bytes && type == RP_TOKEN_NONE)
        return rp_fail(error, -RP_E_FORMAT,
                       "declare the type that was written: `dtype:` (--dtype) i64, i32 or u16",
                       "%s: column `%s` holds bytes, and the width of a token is not given",
                       walking->probe->path, ids->name);
    return type == RP_TOKEN_NONE ? 0 : begin(walking, type, sink, error);
}

static uint64_t header_bytes(const struct rp_probe *probe)
{
    uint64_t table = 4 * ((uint64_t)rp_load_u32(probe->head) + 2);
    return rp_samples_are_in(probe) ? rp_load_u32(probe->head + 4) - table : 0;
}

/* Read the JSON of the columns. *text_out is NULL if the file has no room for one. */
static int read_header(const struct rp_probe *probe, char **text_out, struct rp_error *error)
{
    uint64_t bytes = header_bytes(probe), at = 4 * ((uint64_t)rp_load_u32(probe->head) + 2);
    *text_out = NULL;
    if (bytes < 2 || bytes > HEADER_BYTES_MAX)
        return 0;
    *text_out = malloc((size_t)bytes);
    if (!*text_out)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its header", probe->path);
    int code = rp_file_read_at(probe->fd, probe->path, *text_out, (size_t)bytes, at, error);
    if (code < 0) {
        free(*text_out);
        *text_out = NULL;
    }
    return code;
}

static int walk_samples(struct walking *walking, struct rp_sink *sink, struct rp_error *error)
{
    const struct rp_probe *probe = walking->probe;
    char *text = NULL;
    int code = rp_samples_begin(&walking->samples, probe, error);
    if (code == 0)
        code = read_header(probe, &text, error);
    if (code == 0)
        code = rp_mds_read_header(probe, text ? text : "", text ? header_bytes(probe) : 0,
                                  walking->options->column, &walking->header, error);
    free(text);
    walking->type = RP_TOKEN_NONE;
    if (code == 0 && walking->samples.count == 0)
        code = rp_fail(error, -RP_E_EMPTY, "remove it from the list of shards, or write it again",
                       "%s: expected samples, found none", probe->path);
    if (code == 0)
        code = begin_typed(walking, sink, error);
    while (code == 0 && walking->samples.next < walking->samples.count)
        code = emit(walking, sink, error);
    return code;
}

static int walk(const struct rp_probe *probe, const struct rp_reader_options *options,
                struct rp_sink *sink, struct rp_error *error)
{
    struct walking *walking = malloc(sizeof *walking);
    if (!walking)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory to read it", probe->path);
    walking->probe = probe;
    walking->options = options;
    int code = walk_samples(walking, sink, error);
    free(walking);
    return code;
}

/* shard.00000.mds.zstd and the like */
static bool is_compressed(const struct rp_probe *probe)
{
    return strstr(rp_path_name(probe->path), ".mds.") != NULL;
}

static int claim(const struct rp_probe *probe, char why[256], struct rp_error *error)
{
    struct rp_error ignored;
    char *text = NULL;
    bool is = read_header(probe, &text, &ignored) == 0 && text &&
              rp_mds_is_header(text, header_bytes(probe));
    free(text);
    snprintf(why, 256, "its header is the JSON of an MDS shard (mosaicml-streaming)");
    if (!is && is_compressed(probe))
        return rp_readers_convert(probe, "an MDS shard that is compressed", error);
    return is;
}

const struct rp_reader rp_reader_mds = {
    .format = RP_FORMAT_MDS,
    .title = "an MDS shard",
    .holds_no_mask = true,
    .folders = "index.json with *.mds (mosaicml-streaming)",
    .claim = claim,
    .expand = rp_mds_expand,
    .walk = walk,
};
