/* SPDX-License-Identifier: Apache-2.0 */
/* gunzip — see gunzip.h. */
#include "corpus/gunzip.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"

#define PIECE_BYTES (64u << 10)
#define GZIP_ONLY (16 + MAX_WBITS) /* zlib's windowBits: no other wrapper is accepted */

int rp_gunzip_open(struct rp_gunzip *text, const char *path, bool is_compressed,
                   struct rp_error *error)
{
    *text = (struct rp_gunzip){.path = path};
    text->fd = rp_file_open_read(path, &text->file_bytes, error);
    if (text->fd < 0)
        return text->fd;
    text->input = malloc(PIECE_BYTES);
    text->output = is_compressed ? malloc(PIECE_BYTES) : NULL;
    bool has_memory = text->input && (!is_compressed || text->output);
    if (has_memory && (!is_compressed || inflateInit2(&text->stream, GZIP_ONLY) == Z_OK))
        return 0;
    free(text->output);
    text->output = NULL; /* so that nothing is left of zlib's to close */
    rp_gunzip_close(text);
    return rp_fail(error, -ENOMEM, NULL, "%s: no memory to read it", path);
}

void rp_gunzip_close(struct rp_gunzip *text)
{
    if (text->output)
        inflateEnd(&text->stream);
    if (text->fd >= 0)
        close(text->fd);
    free(text->input);
    free(text->output);
    *text = (struct rp_gunzip){.fd = -1};
}

/* Read the next bytes of the file into `input`; 0 at its end. */
static int fill(struct rp_gunzip *text, size_t *bytes_out, struct rp_error *error)
{
    *bytes_out = (size_t)rp_min_u64(PIECE_BYTES, text->file_bytes - text->at);
    int code = rp_file_read_at(text->fd, text->path, text->input, *bytes_out, text->at, error);
    text->at += *bytes_out;
    return code;
}

/* Of the file: the first byte that was not decompressed yet. */
static uint64_t position_of(const struct rp_gunzip *text)
{
    return text->at - text->stream.avail_in;
}

static int fail_archive(const struct rp_gunzip *text, uint64_t byte, const char *found,
                        struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again; `gzip -t` tests one",
                   "%s: byte %" PRIu64 ": expected a gzip archive, found %s", text->path, byte,
                   found);
}

/* Decompress what is in `input`. An archive may follow another. */
static int decompress(struct rp_gunzip *text, struct rp_error *error)
{
    bool begins = !text->is_inside;
    uint64_t byte = position_of(text);
    int outcome = begins ? inflateReset(&text->stream) : Z_OK;
    text->is_inside = true;
    if (outcome == Z_OK)
        outcome = inflate(&text->stream, Z_NO_FLUSH);
    if (outcome == Z_STREAM_END)
        text->is_inside = false;
    else if (outcome == Z_MEM_ERROR)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory to read it", text->path);
    else if (outcome != Z_OK && outcome != Z_BUF_ERROR)
        return begins ? fail_archive(text, byte, "something else", error)
                      : fail_archive(text, position_of(text), "a damaged one", error);
    return 0;
}

int rp_gunzip_next(struct rp_gunzip *text, const uint8_t **piece_out, size_t *bytes_out,
                   struct rp_error *error)
{
    *piece_out = text->output ? text->output : text->input;
    if (!text->output)
        return fill(text, bytes_out, error);
    z_stream *stream = &text->stream;
    stream->next_out = text->output;
    stream->avail_out = PIECE_BYTES;
    int code = 0;
    while (code == 0 && stream->avail_out > 0) {
        size_t bytes = 1;
        if (stream->avail_in == 0) {
            code = fill(text, &bytes, error);
            stream->next_in = text->input;
            stream->avail_in = (uInt)bytes;
        }
        if (bytes == 0)
            break;
        if (code == 0)
            code = decompress(text, error);
    }
    *bytes_out = PIECE_BYTES - stream->avail_out;
    if (code == 0 && *bytes_out == 0 && text->is_inside)
        return fail_archive(text, text->at, "the end of the file: it was cut short", error);
    return code;
}
