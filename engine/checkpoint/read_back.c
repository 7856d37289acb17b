/* SPDX-License-Identifier: Apache-2.0 */
/* read_back.c — see read_back.h.
 *
 * The caller's thread reads into one half of the buffer while a helper thread hashes the other
 * half, so that the disk is never idle. All calls of the storage are made by the caller's thread,
 * in order. The caller hashes the last part itself, and every part if no thread can be started
 * for it. */
#include "checkpoint/read_back.h"

#include <errno.h>
#include <pthread.h>

#include "base/bits.h"
#include "base/thread.h"

#define PAGE_BYTES 4096u

/* The state of the comparison. It belongs to the thread that hashes. */
struct comparison {
    const struct rp_writer_span *span, *end;
    uint64_t left; /* bytes of *span that are still to come */
    struct rp_hasher hasher;
    const struct rp_writer_span *bad; /* the first span that differs; NULL = none so far */
    const uint8_t *data;              /* the next bytes of the file */
    size_t bytes;
};

static void begin_span(struct comparison *c)
{
    c->left = c->span == c->end ? UINT64_MAX : c->span->bytes;
    rp_hasher_begin(&c->hasher);
}

static void *compare(void *argument)
{
    struct comparison *c = argument;
    for (;;) {
        while (c->left == 0) { /* a loop, because spans may be empty */
            if (!c->bad && !rp_hash128_equal(rp_hasher_finish(&c->hasher), c->span->hash))
                c->bad = c->span;
            c->span++;
            begin_span(c);
        }
        size_t count = rp_min_u64(c->bytes, c->left);
        if (count == 0)
            return NULL;
        rp_hasher_add(&c->hasher, c->data, count);
        c->data += count;
        c->bytes -= count;
        c->left -= count;
    }
}

/* Read exactly `bytes` bytes of the file. */
static int read_part(const struct rp_writer *writer, int fd, uint8_t *buffer, size_t bytes,
                     uint64_t offset)
{
    while (bytes > 0) {
        ssize_t got = writer->storage->read(writer->storage, fd, buffer, bytes, offset);
        /* The file consists of whole pages, and the next direct read must begin at one. */
        if (got <= 0 || got % PAGE_BYTES != 0)
            return got < 0 ? (int)got : -EIO;
        buffer += got;
        bytes -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

int rp_checkpoint_read_back(const struct rp_writer *writer, int fd,
                            const struct rp_writer_file *file,
                            const struct rp_writer_span **bad_out)
{
    struct comparison comparison = {.span = file->spans, .end = file->spans + file->span_count};
    size_t part = writer->buffer_bytes / 2;
    uint64_t file_bytes = 0;
    pthread_t thread;
    bool is_hashing = false; /* the helper thread was started and has not been joined */
    int code = 0;
    for (size_t i = 0; i < file->span_count; i++)
        file_bytes += file->spans[i].bytes;
    begin_span(&comparison);
    for (uint64_t offset = 0; code == 0 && offset < file_bytes; offset += part) {
        uint8_t *buffer = writer->buffer + (offset / part % 2 ? part : 0);
        size_t bytes = rp_min_u64(part, file_bytes - offset);
        code = read_part(writer, fd, buffer, bytes, offset);
        if (is_hashing)
            pthread_join(thread, NULL);
        comparison.data = buffer;
        comparison.bytes = code == 0 ? bytes : 0;
        is_hashing = code == 0 && offset + bytes < file_bytes &&
                     rp_thread_try(&thread, compare, &comparison) == 0;
        if (!is_hashing)
            compare(&comparison);
    }
    *bad_out = comparison.bad;
    return code < 0 ? code : comparison.bad ? -RP_E_CORRUPT : 0;
}
