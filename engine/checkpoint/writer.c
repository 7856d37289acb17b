/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c — see writer.h. FORMAT.md, "Writing", explains each step.
 *
 * Invariants
 *
 *   W1  A file gets its final name only after its bytes were fsynced and, unless it is read back
 *       later, were read back and found equal.
 *
 *   W2  fsync is called once per inode. When it fails, the kernel has dropped the pages and marked
 *       them clean, so a second fsync would succeed without them. So the inode is unlinked, and the
 *       next attempt makes a new one.
 *
 *   W3  Success is reported only after the directory was fsynced after the rename. */
#include "checkpoint/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/growing_section.h"
#include "checkpoint/read_back.h"

#define PAGE_BYTES 4096u
#define WRITE_BYTES_MIN (4u << 20)         /* larger writes are no faster */
#define FIRST_WRITE_BYTES_MIN (512u << 10) /* for a growing section: the disk begins early */
#define TEMPORARY_PREFIX "."
#define TEMPORARY_SUFFIX ".tmp"

static void make_temporary(char out[RP_WRITER_NAME_MAX], const char *name)
{
    int length = snprintf(out, RP_WRITER_NAME_MAX, TEMPORARY_PREFIX "%s" TEMPORARY_SUFFIX, name);
    RP_ASSERT(length > 0 && length < RP_WRITER_NAME_MAX);
}

bool rp_writer_name_of(char out[RP_WRITER_NAME_MAX], const char *temporary)
{
    size_t prefix = strlen(TEMPORARY_PREFIX), suffix = strlen(TEMPORARY_SUFFIX);
    size_t length = strlen(temporary);
    if (length <= prefix + suffix || length >= RP_WRITER_NAME_MAX ||
        strncmp(temporary, TEMPORARY_PREFIX, prefix) != 0 ||
        strcmp(temporary + length - suffix, TEMPORARY_SUFFIX) != 0)
        return false;
    size_t bytes = length - prefix - suffix;
    memcpy(out, temporary + prefix, bytes);
    out[bytes] = 0;
    return true;
}

static int fail_step(const struct rp_writer *writer, struct rp_error *error, int code,
                     const char *name, const char *verb)
{
    const char *hint = "earlier checkpoints are untouched; check the disk (dmesg)", *more = "";
    if (code == -ENOSPC && rp_fd_lacks_inodes(writer->dir)) {
        more = ": no inodes are free";
        hint = "earlier checkpoints are untouched; bytes may be free, but no inodes (`df -i`): "
               "remove files that are not needed, or use another file system";
    }
    if (code == -ESPIPE)
        hint = "a save writes the beginning of its file last, and this mount writes in order only: "
               "mount it with a write cache (rclone: `--vfs-cache-mode writes`), or use another "
               "file system";
    else if ((code == -ENOSPC && !*more) || code == -EDQUOT || code == -EFBIG)
        hint = "earlier checkpoints are untouched; make room, raise the quota or the limit of file "
               "sizes, or keep fewer checkpoints";
    else if (code == -EACCES || code == -EPERM || code == -EROFS)
        hint = "earlier checkpoints are untouched; make the directory writable for this user";
    else if (code == -ENOENT || code == -ESTALE)
        hint =
            "the directory was removed or unmounted while it was in use; bring it back and restart";
    return rp_fail(error, code, hint, "%s/%s: cannot %s: %s%s", writer->path, name, verb,
                   rp_strerror(code), more);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A part of a file, written from front to back. Each write begins at a page boundary of memory and
 * of the file, as direct I/O requires. Data without this alignment is copied into the buffer first;
 * contents have it, and are written in place. */
struct stream {
    const struct rp_writer *writer;
    int fd;
    uint64_t offset; /* where buffer[0] is in the file */
    size_t used;     /* bytes that wait in the buffer */
};

static int stream_write(struct stream *stream, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t put = stream->writer->storage->write(stream->writer->storage, stream->fd, data,
                                                     bytes, stream->offset);
        if (put <= 0)
            return put < 0 ? (int)put
                           : -EIO; /* a write of 0 bytes, again and again, would never end */
        RP_ASSERT((size_t)put <= bytes);
        data += put;
        bytes -= (size_t)put;
        stream->offset += (uint64_t)put;
    }
    return 0;
}

static int stream_flush(struct stream *stream)
{
    size_t used = stream->used;
    stream->used = 0;
    return stream_write(stream, stream->writer->buffer, used);
}

static uint64_t smallest_write(const struct rp_writer *writer)
{
    return rp_min_u64(WRITE_BYTES_MIN, writer->buffer_bytes);
}

/* Write the whole pages of `data` without copying them, if they are aligned in memory and in the
 * file and are enough for one write: `least` bytes. Returns the number of bytes written (0: copy
 * them), or a code. */
static ssize_t stream_add_pages(struct stream *stream, const uint8_t *data, size_t bytes,
                                uint64_t least)
{
    size_t whole = rp_align_down(bytes, PAGE_BYTES);
    if (whole < least || (uintptr_t)data % PAGE_BYTES != 0 || stream->used % PAGE_BYTES != 0)
        return 0;
    int code = stream_flush(stream);
    if (code == 0)
        code = stream_write(stream, data, whole);
    return code < 0 ? code : (ssize_t)whole;
}

static int stream_add(struct stream *stream, const uint8_t *data, size_t bytes, uint64_t least)
{
    const struct rp_writer *writer = stream->writer;
    ssize_t written = stream_add_pages(stream, data, bytes, least);
    if (written < 0)
        return (int)written;
    data += written;
    bytes -= (size_t)written;
    while (bytes > 0) {
        size_t count = rp_min_u64(bytes, writer->buffer_bytes - stream->used);
        memcpy(writer->buffer + stream->used, data, count);
        stream->used += count;
        data += count;
        bytes -= count;
        int code = stream->used == writer->buffer_bytes ? stream_flush(stream) : 0;
        if (code < 0)
            return code;
    }
    return 0;
}

/* The least size of the next write of a growing section after `done` bytes. The disk is idle before
 * the first write, so that one is small. Each write is at least as long as all before it together:
 * few writes are small. */
static uint64_t next_write(const struct rp_writer *writer, uint64_t done)
{
    return rp_min_u64(smallest_write(writer), rp_max_u64(FIRST_WRITE_BYTES_MIN, done));
}

/* Write the bytes that are final while the other thread makes the rest. The bytes in the buffer are
 * written first, before it waits for more. */
static int stream_add_growing(struct stream *stream, const struct rp_writer_span *span)
{
    const uint8_t *data = span->pieces[0].data;
    uint64_t done = 0;
    if (span->bytes >= smallest_write(stream->writer) && stream->used % PAGE_BYTES == 0) {
        int code = stream_flush(stream);
        if (code < 0)
            return code;
    }
    while (done < span->bytes) {
        uint64_t least = next_write(stream->writer, done);
        int64_t final_bytes = rp_growing_section_wait(span->growing,
                                                      rp_min_u64(span->bytes, done + least));
        if (final_bytes < 0)
            return (int)final_bytes;
        uint64_t end = (uint64_t)final_bytes;
        if (end < span->bytes)
            end = rp_align_down(end, PAGE_BYTES);
        int code = stream_add(stream, data + done, end - done, least);
        if (code < 0)
            return code;
        done = end;
    }
    return 0;
}

static int stream_add_span(struct stream *stream, const struct rp_writer_span *span)
{
    if (span->growing)
        return stream_add_growing(stream, span);
    int code = 0;
    for (size_t i = 0; i < span->piece_count && code == 0; i++)
        code = stream_add(stream, span->pieces[i].data, span->pieces[i].bytes,
                          smallest_write(stream->writer));
    return code;
}

/* The first span, the head, is written last: it holds the hashes of the others. */
static int write_spans(const struct rp_writer *writer, int fd, struct rp_writer_file *file)
{
    struct stream rest = {.writer = writer, .fd = fd, .offset = file->spans[0].bytes};
    struct stream first = {.writer = writer, .fd = fd};
    int code = 0;
    for (size_t i = 1; i < file->span_count && code == 0; i++) {
        if (i + 1 == file->span_count && file->seal)
            file->seal(file);
        code = stream_add_span(&rest, &file->spans[i]);
    }
    if (code == 0)
        code = stream_flush(&rest);
    if (code == 0)
        code = stream_add_span(&first, &file->spans[0]);
    return code == 0 ? stream_flush(&first) : code;
}

static int write_file(struct rp_writer *writer, const char *temporary, struct rp_writer_file *file,
                      uint64_t bytes, struct rp_error *error)
{
    struct rp_storage *storage = writer->storage;
    uint64_t began_ns = rp_now_ns();
    int fd = storage->create(storage, writer->dir, temporary);
    if (fd < 0)
        return fail_step(writer, error, fd, temporary, "create the file");
    const char *verb = "reserve room for the file";
    int code = storage->reserve(storage, fd, bytes);
    if (code == 0) {
        verb = "write the file";
        code = write_spans(writer, fd, file);
    }
    uint64_t written_ns = rp_now_ns();
    writer->times = (struct rp_checkpoint_times){.write_ns = written_ns - began_ns};
    if (code == 0) {
        verb = "sync the file";
        code = storage->sync(storage, fd); /* W2 */
    }
    writer->times.sync_ns = rp_now_ns() - written_ns;
    int close_code = storage->close(storage, fd);
    if (code == 0 && close_code < 0) {
        verb = "close the file";
        code = close_code;
    }
    return code < 0 ? fail_step(writer, error, code, temporary, verb) : 0;
}

/* ---- reading back ---------------------------------------------------------------------------- */

static int fail_compare(const struct rp_writer *writer, const char *temporary,
                        const struct rp_writer_file *file, const struct rp_writer_span *bad,
                        struct rp_error *error)
{
    uint64_t offset = 0;
    for (const struct rp_writer_span *span = file->spans; span < bad; span++)
        offset += span->bytes;
    return rp_fail(error, -RP_E_CORRUPT,
                   "earlier checkpoints are untouched; check the disk (smartctl) and the memory",
                   "%s/%s: the disk returned other bytes than were written, in the %" PRIu64
                   " bytes from %" PRIu64 " on",
                   writer->path, temporary, bad->bytes, offset);
}

int rp_writer_read_back(struct rp_writer *writer, const char *name,
                        const struct rp_writer_file *file, struct rp_error *error)
{
    struct rp_storage *storage = writer->storage;
    const struct rp_writer_span *bad;
    uint64_t began_ns = rp_now_ns();
    int fd = storage->reopen(storage, writer->dir, name);
    if (fd < 0)
        return fail_step(writer, error, fd, name, "open the file to read it back");
    int code = rp_checkpoint_read_back(writer, fd, file, &bad);
    if (bad)
        code = fail_compare(writer, name, file, bad, error);
    else if (code < 0)
        code = fail_step(writer, error, code, name, "read the file back");
    int close_code = storage->close(storage, fd);
    writer->times.read_back_ns = rp_now_ns() - began_ns;
    return code == 0 && close_code < 0
               ? fail_step(writer, error, close_code, name, "close the file that was read back")
               : code;
}

/* ---- the protocol ---------------------------------------------------------------------------- */

int rp_writer_put(struct rp_writer *writer, const char *name, struct rp_writer_file *file,
                  struct rp_error *error)
{
    struct rp_storage *storage = writer->storage;
    char temporary[RP_WRITER_NAME_MAX];
    make_temporary(temporary, name);
    uint64_t bytes = 0;
    for (size_t i = 0; i < file->span_count; i++)
        bytes += file->spans[i].bytes;
    RP_ASSERT(bytes > 0 && bytes % PAGE_BYTES == 0 && file->spans[0].bytes % PAGE_BYTES == 0);

    int code = write_file(writer, temporary, file, bytes, error);
    if (code == 0 && !file->is_read_back_later)
        code = rp_writer_read_back(writer, temporary, file, error);
    if (code < 0) {
        if (code != -EEXIST) /* that file is not ours */
            storage->unlink(storage, writer->dir, temporary);
        return code;
    }
    uint64_t named_ns = rp_now_ns();
    code = storage->rename(storage, writer->dir, temporary, name); /* W1 */
    if (code < 0) {
        storage->unlink(storage, writer->dir, temporary);
        return fail_step(writer, error, code, name, "give the file its name");
    }
    code = storage->sync_dir(storage, writer->dir); /* W3 */
    if (code < 0) {
        /* The name may be lost in a power cut, so the save is not reported, and the file must go.
         */
        storage->unlink(storage, writer->dir, name);
        return fail_step(writer, error, code, name, "sync the directory");
    }
    writer->times.name_ns = rp_now_ns() - named_ns;
    return 0;
}

int rp_writer_put_bytes(struct rp_writer *writer, const char *name, const void *data, size_t bytes,
                        struct rp_error *error)
{
    struct rp_checkpoint_piece piece = {data, bytes};
    struct rp_writer_span span = {&piece, 1, bytes, rp_hash128(data, bytes), NULL};
    struct rp_writer_file file = {.spans = &span, .span_count = 1};
    return rp_writer_put(writer, name, &file, error);
}

bool rp_writer_wait_to_retry(struct rp_writer *writer, unsigned attempt, int code)
{
    static const uint64_t pause_ns[RP_WRITER_ATTEMPTS - 1] = {100000000u, 1000000000u};
    /* Errors that another attempt would meet again. */
    static const int lasting[] = {ENOSPC, EDQUOT,  EFBIG,  EROFS,  EACCES,       EPERM,
                                  ENOENT, ENOTDIR, ENOMEM, ESPIPE, RP_E_STOPPED, RP_E_BUSY};
    if (attempt + 1 >= RP_WRITER_ATTEMPTS)
        return false;
    for (size_t i = 0; i < RP_ARRAY_COUNT(lasting); i++)
        if (code == -lasting[i])
            return false;
    writer->storage->wait(writer->storage, pause_ns[attempt]);
    return true;
}
