/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h — put bytes under a name so that they are durable, proven to be on the disk, or not
 * there at all.
 *
 * Knows the protocol (FORMAT.md, "Writing") and nothing of what the bytes mean. */
#ifndef RP_CHECKPOINT_WRITER_H
#define RP_CHECKPOINT_WRITER_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/storage.h"

#define RP_WRITER_ATTEMPTS 3u
#define RP_WRITER_BUFFER_BYTES (16u << 20)

/* Where to, and with what. */
struct rp_writer {
    struct rp_storage *storage;
    int dir;             /* file descriptor of the directory */
    const char *path;    /* of the directory, for messages */
    uint8_t *buffer;     /* aligned to 4096: gathers pieces; its halves take what is read back */
    size_t buffer_bytes; /* a multiple of 8192 */
};

/* A run of bytes of the file. Its hash was taken before writing, of the memory as it was meant: so
 * a disk that lies and memory that changed meanwhile are found out alike. */
struct rp_writer_span {
    const struct rp_checkpoint_piece *pieces;
    size_t piece_count;
    uint64_t bytes; /* of the pieces together; may be 0 */
    struct rp_hash128 hash;
    struct rp_growing_section
        *growing; /* brings the bytes of the only piece; NULL: they are there */
};

/* A file: spans one after the other, a multiple of 4096 bytes in all and, where there are others,
 * in the first one. */
struct rp_writer_file {
    struct rp_writer_span *spans;
    size_t span_count;
    /* NULL, or called when all spans but the first and the last are there: fill these in, and the
     * hashes of feeds. Their lengths were right before. */
    void (*seal)(struct rp_writer_file *file);
};

/** One attempt to write the file as `name`. Returns 0 when it is durable under its name and has
 * been read back and compared with the hashes. On failure no file of that name is left, nor a
 * temporary one, as far as the directory still obeys; other files are not touched. */
RP_MUST_CHECK int rp_writer_put(struct rp_writer *writer, const char *name,
                                struct rp_writer_file *file, struct rp_error *error);

/** The same for one piece of memory. */
RP_MUST_CHECK int rp_writer_put_bytes(struct rp_writer *writer, const char *name, const void *data,
                                      size_t bytes, struct rp_error *error);

/** After attempt number `attempt` (0, 1, …) failed with `code`: true, after a pause, when another
 * one, with a new inode, makes sense. */
bool rp_writer_again(struct rp_writer *writer, unsigned attempt, int code);

/** The temporary name under which `name` is written, and the name that a temporary one stands for:
 * false if `temporary` cannot be one. */
#define RP_WRITER_NAME_MAX 96
void rp_writer_temporary(char out[RP_WRITER_NAME_MAX], const char *name);
bool rp_writer_name_of(char out[RP_WRITER_NAME_MAX], const char *temporary);

#endif
