/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/gunzip.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#define PIECE_BYTES (64u << 10)
#define GZIP_ONLY (16 + MAX_WBITS) /* zlib's windowBits: no other wrapper is accepted */

int rp_gunzip_begin(struct rp_gunzip *text, int fd, const char *path, enum rp_gunzip_form form,
                    struct rp_error *error)
{
    *text = (struct rp_gunzip){.path = path, .fd = fd, .form = form};
    text->input = malloc(PIECE_BYTES);
    if (text->input && inflateInit2(&text->stream, GZIP_ONLY) == Z_OK)
        return 0;
    return rp_fail(error, -ENOMEM, NULL, "%s: no memory to read it", path);
}

void rp_gunzip_end(struct rp_gunzip *text)
{
    (void)inflateEnd(&text->stream); /* no effect on a stream of zeros */
    free(text->input);
}

/* Read the next bytes into `input`, none at the end of the file. */
static int read_input(struct rp_gunzip *text, struct rp_error *error)
{
    size_t have = 0;
    for (ssize_t got = 1; have < PIECE_BYTES && got != 0; have += got > 0 ? (size_t)got : 0) {
        got = read(text->fd, text->input + have, PIECE_BYTES - have);
        if (got < 0 && errno != EINTR)
            return rp_file_fail(error, text->path, "read");
    }
    if (text->form == RP_GUNZIP_EITHER)
        text->form = have >= 2 && !memcmp(text->input, "\x1f\x8b", 2) ? RP_GUNZIP_ARCHIVE
                                                                      : RP_GUNZIP_PLAIN;
    text->at += have;
    text->stream.next_in = text->input;
    text->stream.avail_in = (uInt)have;
    return 0;
}

/* The place in the file of the first byte that was not taken yet. */
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

/* Decompress `input`. An archive may follow another. */
static int decompress(struct rp_gunzip *text, struct rp_error *error)
{
    z_stream *stream = &text->stream;
    bool begins = !text->is_inside;
    uint64_t byte = position_of(text);
    if (begins && text->has_archive && *stream->next_in == 0) { /* padding */
        stream->next_in++;
        stream->avail_in--;
        return 0;
    }
    int outcome = begins ? inflateReset(stream) : Z_OK;
    if (outcome == Z_OK)
        outcome = inflate(stream, Z_NO_FLUSH);
    text->has_archive = true;
    text->is_inside = outcome != Z_STREAM_END;
    if (outcome == Z_OK || outcome == Z_STREAM_END || outcome == Z_BUF_ERROR)
        return 0;
    if (outcome == Z_MEM_ERROR)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory to read it", text->path);
    return begins ? fail_archive(text, byte, "something else", error)
                  : fail_archive(text, position_of(text), "a damaged one", error);
}

static void copy(z_stream *stream)
{
    uInt bytes = stream->avail_in < stream->avail_out ? stream->avail_in : stream->avail_out;
    memcpy(stream->next_out, stream->next_in, bytes);
    stream->next_in += bytes;
    stream->avail_in -= bytes;
    stream->next_out += bytes;
    stream->avail_out -= bytes;
}

int rp_gunzip_read(struct rp_gunzip *text, void *to, size_t bytes, size_t *got_out,
                   struct rp_error *error)
{
    z_stream *stream = &text->stream;
    int code = 0;
    RP_ASSERT(bytes > 0 && bytes <= UINT32_MAX); /* zlib counts in 32 bits */
    stream->next_out = to;
    stream->avail_out = (uInt)bytes;
    while (code == 0 && stream->avail_out > 0) {
        code = stream->avail_in == 0 ? read_input(text, error) : 0;
        if (stream->avail_in == 0)
            break;
        if (text->form == RP_GUNZIP_PLAIN)
            copy(stream);
        else
            code = decompress(text, error);
    }
    *got_out = bytes - stream->avail_out;
    if (code == 0 && *got_out == 0 && text->is_inside)
        return fail_archive(text, text->at, "the end of the file: it was cut short", error);
    return code;
}
