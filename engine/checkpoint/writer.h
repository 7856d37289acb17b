/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h — write a file so that it is either durable and verified under its name, or absent.
 *
 * The writer implements the protocol of FORMAT.md, "Writing". It does not interpret the bytes.
 */
#ifndef RP_CHECKPOINT_WRITER_H
#define RP_CHECKPOINT_WRITER_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/storage.h"

#define RP_WRITER_ATTEMPTS 3u
#define RP_WRITER_BUFFER_BYTES (16u << 20)

/* The directory to write to, its storage and its buffer. */
struct rp_writer {
    struct rp_storage *storage;
    int dir;          /* file descriptor of the directory */
    const char *path; /* the directory's, for messages */
    uint8_t *buffer;  /* aligned to 4096; joins pieces. Its halves are used to read the file back */
    size_t buffer_bytes;              /* a multiple of 8192 */
    struct rp_checkpoint_times times; /* the last file's */
};

/* A run of bytes of the file. Its hash is taken of the memory before it is written, so reading back
 * finds both a disk that returns other bytes and memory that changed in between. */
struct rp_writer_span {
    const struct rp_checkpoint_piece *pieces;
    size_t piece_count;
    uint64_t bytes; /* all pieces together; may be 0 */
    struct rp_hash128 hash;
    struct rp_growing_section
        *growing; /* says which bytes of the only piece are final; NULL = all */
};

/* A file: spans one after the other. All spans together have a multiple of 4096 bytes; if there are
 * several, so has the first. */
struct rp_writer_file {
    struct rp_writer_span *spans;
    size_t span_count;
    /* NULL, or called when all spans but the first and the last are written. It fills in the bytes
     * and hashes of these two, and the hashes of growing sections; lengths do not change. */
    void (*seal)(struct rp_writer_file *file);
    bool is_read_back_later; /* by rp_writer_read_back, once it has its name */
};

/** One attempt to write the file as `name`. Returns 0 when it is durable under its name and,
 * unless is_read_back_later is set, has been read back and compared with the hashes. On failure the
 * file is removed under its name and its temporary name, unless the removal also fails. No other
 * file is touched. */
RP_MUST_CHECK int rp_writer_put(struct rp_writer *writer, const char *name,
                                struct rp_writer_file *file, struct rp_error *error);

/** Read the file `name` past the page cache, and compare it with the hashes of the spans, whose
 * memory is not needed any more. -RP_E_CORRUPT: the disk returned other bytes. The file stays. */
RP_MUST_CHECK int rp_writer_read_back(struct rp_writer *writer, const char *name,
                                      const struct rp_writer_file *file, struct rp_error *error);

/** rp_writer_put for one piece of memory. */
RP_MUST_CHECK int rp_writer_put_bytes(struct rp_writer *writer, const char *name, const void *data,
                                      size_t bytes, struct rp_error *error);

/** After attempt number `attempt` (0, 1, …) failed with `code`: true, after a pause, if another
 * attempt may succeed; false at once if it would fail again, or was the last. */
bool rp_writer_wait_to_retry(struct rp_writer *writer, unsigned attempt, int code);

/** The name that a file has while it is written under a temporary name. False if `temporary` is not
 * such a name. */
#define RP_WRITER_NAME_MAX 96
bool rp_writer_name_of(char out[RP_WRITER_NAME_MAX], const char *temporary);

#endif
