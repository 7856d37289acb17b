/* SPDX-License-Identifier: Apache-2.0 */
/* output.c — a Megatron dataset (engine/corpus/shard_megatron.c has the layout) that is there
 * whole or not at all: both files are on the disk before either gets its name, and whatever fails
 * later takes back what was published. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "convert/convert.h"
#include "corpus/corpus.h"

#define BUFFER_BYTES (1u << 20)
#define INDEX_HEADER_BYTES 34u

enum { CODE_I32 = 4, CODE_U16 = 8 }; /* dtype codes of the index */

static int refuse_existing(const char *path, struct rp_error *error)
{
    if (access(path, F_OK) < 0)
        return 0;
    return rp_fail(error, -EEXIST, "choose another -o, or give --force to replace it",
                   "%s: it exists already", path);
}

int rp_output_open(struct rp_output *output, const char *prefix, uint64_t vocab_size, bool replace,
                   struct rp_error *error)
{
    *output = (struct rp_output){.tokens.fd = -1, .wide = vocab_size >= 65500};
    output->token_path = rp_format("%s.bin", prefix);
    output->index_path = rp_format("%s.idx", prefix);
    output->buffer = malloc(BUFFER_BYTES);
    int code = 0;
    if (!output->token_path || !output->index_path || !output->buffer)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory to write it", prefix);
    if (code == 0 && !replace)
        code = refuse_existing(output->token_path, error);
    if (code == 0 && !replace)
        code = refuse_existing(output->index_path, error);
    if (code == 0)
        code = rp_new_file_open(&output->tokens, output->token_path, error);
    if (code < 0)
        rp_output_discard(output);
    return code;
}

static int flush(struct rp_output *output, struct rp_error *error)
{
    int code = rp_file_write(output->tokens.fd, output->token_path, output->buffer,
                             output->buffered, error);
    output->buffered = 0;
    return code;
}

static int put_tokens(struct rp_output *output, const uint32_t *tokens, size_t count,
                      struct rp_error *error)
{
    size_t width = output->wide ? 4 : 2;
    while (count > 0) {
        size_t part = (size_t)rp_min_u64(count, (BUFFER_BYTES - output->buffered) / width);
        uint8_t *to = output->buffer + output->buffered;
        if (output->wide)
            memcpy(to, tokens, part * sizeof *tokens);
        else
            for (size_t i = 0; i < part; i++) {
                uint16_t narrow = (uint16_t)tokens[i];
                memcpy(to + 2 * i, &narrow, sizeof narrow);
            }
        output->buffered += part * width;
        tokens += part;
        count -= part;
        int code = output->buffered == BUFFER_BYTES ? flush(output, error) : 0;
        if (code < 0)
            return code;
    }
    return 0;
}

int rp_output_add(struct rp_output *output, const uint32_t *tokens, size_t count, int64_t eos,
                  struct rp_error *error)
{
    bool append = eos >= 0 && (count == 0 || tokens[count - 1] != (uint32_t)eos);
    size_t length = count + append;
    if (length > INT32_MAX)
        return rp_fail(error, -RP_E_FORMAT, "cut it with --split-bytes",
                       "a document of %zu tokens: the index holds at most %d", length, INT32_MAX);
    if (output->documents == output->capacity) {
        size_t capacity = output->capacity ? 2 * output->capacity : 4096;
        int32_t *lengths = reallocarray(output->lengths, capacity, sizeof *lengths);
        if (!lengths)
            return rp_fail(error, -ENOMEM, NULL, "no memory for an index of %zu documents",
                           capacity);
        output->lengths = lengths;
        output->capacity = capacity;
    }
    output->lengths[output->documents++] = (int32_t)length;
    output->token_count += length;
    int code = put_tokens(output, tokens, count, error);
    uint32_t end = (uint32_t)eos;
    return code == 0 && append ? put_tokens(output, &end, 1, error) : code;
}

/* The index is written through the same buffer, which is empty by then. */
struct index_writer {
    struct rp_output *output;
    int fd;
    int code;
};

static void put(struct index_writer *writer, const void *bytes, size_t count,
                struct rp_error *error)
{
    struct rp_output *output = writer->output;
    if (writer->code == 0 && output->buffered + count > BUFFER_BYTES) {
        writer->code = rp_file_write(writer->fd, output->index_path, output->buffer,
                                     output->buffered, error);
        output->buffered = 0;
    }
    if (writer->code < 0)
        return;
    memcpy(output->buffer + output->buffered, bytes, count);
    output->buffered += count;
}

static int write_index(struct rp_output *output, int fd, struct rp_error *error)
{
    struct index_writer writer = {output, fd, 0};
    uint8_t header[INDEX_HEADER_BYTES] = "MMIDIDX";
    uint64_t width = output->wide ? 4 : 2, position = 0;
    rp_store_u64(header + 9, 1);
    header[17] = output->wide ? CODE_I32 : CODE_U16;
    rp_store_u64(header + 18, output->documents);
    rp_store_u64(header + 26, output->documents + 1);
    put(&writer, header, sizeof header, error);
    for (size_t d = 0; d < output->documents; d++)
        put(&writer, &output->lengths[d], sizeof output->lengths[d], error);
    for (size_t d = 0; d < output->documents; d++) {
        put(&writer, &position, sizeof position, error);
        position += (uint64_t)output->lengths[d] * width;
    }
    for (uint64_t d = 0; d <= output->documents; d++)
        put(&writer, &d, sizeof d, error);
    if (writer.code == 0)
        writer.code = rp_file_write(fd, output->index_path, output->buffer, output->buffered,
                                    error);
    output->buffered = 0;
    return writer.code;
}

/* A full disk may show only here: before anything has a name. */
static int sync_file(int fd, const char *path, struct rp_error *error)
{
    if (fsync(fd) == 0)
        return 0;
    return rp_fail(error, -errno, "make room on this file system, or write to another one",
                   "%s: cannot sync: %s", path, strerror(errno));
}

static int publish_both(struct rp_output *output, struct rp_new_file *index, struct rp_error *error)
{
    char *sidecar_path = rp_format("%s.rpx", output->token_path);
    if (!sidecar_path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", output->token_path);
    /* Old companions go first: with the new tokens they would be a dataset that never was. */
    unlink(sidecar_path);
    unlink(output->index_path);
    int code = rp_new_file_publish(&output->tokens, error);
    bool published = code == 0;
    if (code == 0)
        code = rp_new_file_publish(index, error);
    if (code == 0)
        code = rp_index_build(output->token_path, NULL, NULL, NULL, NULL, error);
    if (code < 0 && published) {
        unlink(sidecar_path);
        unlink(output->index_path);
        unlink(output->token_path);
    }
    free(sidecar_path);
    return code;
}

int rp_output_publish(struct rp_output *output, struct rp_error *error)
{
    struct rp_new_file index = {.fd = -1};
    int code = flush(output, error);
    if (code == 0)
        code = rp_new_file_open(&index, output->index_path, error);
    if (code == 0)
        code = write_index(output, index.fd, error);
    if (code == 0)
        code = sync_file(output->tokens.fd, output->token_path, error);
    if (code == 0)
        code = sync_file(index.fd, output->index_path, error);
    if (code == 0)
        code = publish_both(output, &index, error);
    rp_new_file_discard(&index);
    return code;
}

void rp_output_discard(struct rp_output *output)
{
    rp_new_file_discard(&output->tokens);
    free(output->token_path);
    free(output->index_path);
    free(output->buffer);
    free(output->lengths);
    *output = (struct rp_output){.tokens.fd = -1};
}
