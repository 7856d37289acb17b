/* SPDX-License-Identifier: Apache-2.0 */
/* side_file.h — PREFIX.NAME.col: one side column of one shard: an entry of fixed width for each
 * token of its token file.
 *
 * The file, little-endian:
 *
 *      0    8  magic 89 'R' 'P' 'C' 0D 0A 1A 0A
 *      8  u32  version, 1
 *     12  u32  type of a value (enum rp_dtype)
 *     16  u32  values of an entry
 *     20  u32  bytes of an entry, at most 512
 *     24  u64  entries
 *     32  u64  B, the blocks of 4096 bytes before the hashes
 *     40   16  XXH3-128 of the hashes
 *     56   16  values that are token ids: hash of their tokenizer (tokenizer_id.h); zeros: none
 *              declared, as in every file before there was this field
 *     72   48  its name, with a NUL; for people
 *    120       zeros
 *   4080   16  XXH3-128 of bytes 0 .. 4079
 *   4096       entries, then zeros to the end of a block
 *  B*4096      u64 XXH3-64 of each block; 0 for block 0, which has a hash of its own
 *
 * PREFIX is the token file without `.bin`. The entries are in the order of the places in the token
 * file, so that separators have entries too, and the byte of a token gives its entry. The column
 * of an object in a store is an object next to it, whose entries are read by ranges. */
#ifndef RP_CORPUS_SIDE_FILE_H
#define RP_CORPUS_SIDE_FILE_H

#include "base/file.h"
#include "base/hash.h"
#include "corpus/corpus.h"
#include "corpus/tokenizer_id.h"
#include "ringpack/batch.h"

#define RP_SIDE_DATA_OFFSET 4096u

struct rp_side_type {
    uint32_t dtype, count, bytes; /* as in struct rp_side */
};
/** "f32", "i32x64". */
#define RP_SIDE_TYPE_BYTES 24u
void rp_sidefile_type_text(const struct rp_side_type *type, char text[RP_SIDE_TYPE_BYTES]);
const char *rp_sidefile_dtype_name(uint32_t dtype);

/** Whether a text can name a column: a small letter or `_`, then small letters, digits or `_`, at
 * most 31 bytes; not the name of a section or of a field that a profile gives. */
bool rp_sidefile_is_name(const char *name);

struct rp_side_file {
    char *path;           /* an object's is the URL for messages */
    char *url, *identity; /* an object's; else NULL */
    struct rp_map map;    /* the file, or the hashes of an object */
    struct rp_side_type type;
    uint64_t entries;
    struct rp_hash128 content; /* hash of the hashes; the header is not in it */
    struct rp_tokenizer_id tokenizer;
    struct rp_shard shard; /* the file as the flow reads it: up to the hashes */
};

/** The name of the file of a shard; the caller frees it. NULL when out of memory. */
char *rp_sidefile_path(const char *token_path, const char *name);
/** Open and check the header and the size; the entries are checked where they are read. */
RP_MUST_CHECK int rp_sidefile_open(struct rp_side_file *file, const char *token_path,
                                   const char *name, struct rp_error *error);
/** The same by its own path. */
RP_MUST_CHECK int rp_sidefile_open_path(struct rp_side_file *file, const char *path,
                                        struct rp_error *error);
/** Whether a file begins as a column. */
bool rp_sidefile_is_file(const char *path);
/** Take the header of a file or object of `bytes` bytes, whose path is in *file. -RP_E_CORRUPT or
 * -RP_E_VERSION. */
RP_MUST_CHECK int rp_sidefile_take_header(struct rp_side_file *file,
                                          const uint8_t header[RP_SIDE_DATA_OFFSET], uint64_t bytes,
                                          struct rp_error *error);
int rp_sidefile_fail(const char *path, const char *problem, struct rp_error *error);
void rp_sidefile_close(struct rp_side_file *file);
/** Compare every block with its hash, and the hashes with the header. -RP_E_CORRUPT. */
RP_MUST_CHECK int rp_sidefile_verify(const struct rp_side_file *file, struct rp_error *error);
/** Compare whole blocks, from block `first` on, with their hashes. -RP_E_CORRUPT. */
RP_MUST_CHECK int rp_sidefile_compare(const struct rp_side_file *file, uint64_t first,
                                      const uint8_t *data, uint64_t bytes, struct rp_error *error);

struct rp_side_writer {
    struct rp_new_file file;
    struct rp_side_type type;
    struct rp_tokenizer_id tokenizer; /* set it before the end; zeros: none declared */
    uint8_t *block;                   /* the block that is being filled */
    uint64_t *hashes;
    uint64_t bytes, block_count, capacity; /* written so far; hashes */
};
/** Begin a file that will replace `path`. */
RP_MUST_CHECK int rp_sidefile_begin(struct rp_side_writer *writer, const char *path,
                                    const struct rp_side_type *type, struct rp_error *error);
/** More entries, whole or in part. */
RP_MUST_CHECK int rp_sidefile_add(struct rp_side_writer *writer, const void *data, size_t bytes,
                                  struct rp_error *error);
/** Everything is in the file: the caller publishes `file`. Discard the writer in any case. */
RP_MUST_CHECK int rp_sidefile_end(struct rp_side_writer *writer, struct rp_error *error);
/** The same, and publish it. */
RP_MUST_CHECK int rp_sidefile_finish(struct rp_side_writer *writer, struct rp_error *error);
void rp_sidefile_discard(struct rp_side_writer *writer);

#endif
