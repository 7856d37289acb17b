/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar_write — a sidecar is written as a stream into a file that has no name until it is whole.
 *
 * Flow: begin, add to both tables in any interleaving, finish. The block table has its final size
 * from the start, so both tables have their place and memory use does not grow with the shard. The
 * header comes last. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "corpus/fingerprint.h"
#include "corpus/sidecar.h"
#include "corpus/sidecar_layout.h"

int rp_sidecar_begin(struct rp_sidecar_writer *writer, const char *path, uint64_t block_count,
                     struct rp_error *error)
{
    writer->file = (struct rp_new_file){.fd = -1};
    writer->path = strdup(path);
    rp_hasher_begin(&writer->blocks.hasher);
    rp_hasher_begin(&writer->starts.hasher);
    writer->blocks.entries = writer->starts.entries = 0;
    writer->blocks.buffered = writer->starts.buffered = 0;
    writer->blocks.offset = RP_SIDECAR_HEADER_BYTES;
    writer->starts.offset = RP_SIDECAR_HEADER_BYTES + 8 * block_count;
    int code = 0;
    if (!writer->path)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory to write a sidecar", path);
    if (code == 0)
        code = rp_new_file_open(&writer->file, path, error);
    if (code < 0)
        rp_sidecar_discard(writer);
    return code;
}

static int flush(struct rp_sidecar_writer *writer, struct rp_sidecar_table *table,
                 struct rp_error *error)
{
    size_t bytes = table->buffered * sizeof table->buffer[0];
    int code = rp_file_write_at(writer->file.fd, writer->path, table->buffer, bytes, table->offset,
                                error);
    rp_hasher_add(&table->hasher, table->buffer, bytes);
    table->offset += bytes;
    table->entries += table->buffered;
    table->buffered = 0;
    return code;
}

int rp_sidecar_add(struct rp_sidecar_writer *writer, struct rp_sidecar_table *table,
                   const uint64_t *entries, size_t count, struct rp_error *error)
{
    while (count > 0) {
        size_t part = (size_t)rp_min_u64(count, RP_ARRAY_COUNT(table->buffer) - table->buffered);
        memcpy(table->buffer + table->buffered, entries, part * sizeof *entries);
        table->buffered += part;
        entries += part;
        count -= part;
        if (table->buffered == RP_ARRAY_COUNT(table->buffer)) {
            int code = flush(writer, table, error);
            if (code < 0)
                return code;
        }
    }
    return 0;
}

/* The sample of a large document table needs bytes from all over it: look at what was written. */
static int sample_starts(const struct rp_sidecar_writer *writer, struct rp_sidecar_info *info,
                         struct rp_error *error)
{
    uint64_t begin = RP_SIDECAR_HEADER_BYTES + 8 * info->block_count;
    uint64_t bytes = begin + info->index_bytes;
    void *map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, writer->file.fd, 0);
    if (map == MAP_FAILED)
        return rp_fail(error, -errno, NULL, "%s: cannot map the new sidecar: %s", writer->path,
                       strerror(errno));
    info->index_sample = rp_index_sample((const uint8_t *)map + begin, info->index_bytes);
    munmap(map, (size_t)bytes);
    return 0;
}

static void store_hash(uint8_t *p, struct rp_hash128 hash)
{
    rp_store_u64(p, hash.low);
    rp_store_u64(p + 8, hash.high);
}

static void encode(const struct rp_sidecar_info *info, uint8_t header[RP_SIDECAR_HEADER_BYTES])
{
    memset(header, 0, RP_SIDECAR_HEADER_BYTES);
    memcpy(header, RP_SIDECAR_MAGIC, 8);
    rp_store_u32(header + AT_VERSION, RP_SIDECAR_VERSION);
    rp_store_u32(header + AT_BLOCK_BYTES, RP_BLOCK_BYTES);
    rp_store_u32(header + AT_FORMAT, (uint32_t)info->format);
    rp_store_u32(header + AT_TYPE, (uint32_t)info->type);
    rp_store_u64(header + AT_EOS, (uint64_t)info->eos);
    rp_store_u64(header + AT_BYTES, info->bytes);
    rp_store_u64(header + AT_TOKEN_OFFSET, info->token_offset);
    rp_store_u64(header + AT_TOKENS, info->tokens);
    rp_store_u64(header + AT_DOCUMENTS, info->documents);
    rp_store_u64(header + AT_TOKEN_MAX, info->token_max);
    rp_store_u64(header + AT_BLOCK_COUNT, info->block_count);
    rp_store_u64(header + AT_START_COUNT, info->start_count);
    rp_store_u64(header + AT_INDEX_BYTES, info->index_bytes);
    store_hash(header + AT_INDEX_SAMPLE, info->index_sample);
    store_hash(header + AT_INDEX_CONTENT, info->index_content);
    store_hash(header + AT_CONTENT, info->content);
    store_hash(header + AT_HEADER_HASH, rp_hash128(header, AT_HEADER_HASH));
}

int rp_sidecar_finish(struct rp_sidecar_writer *writer, struct rp_sidecar_info *info,
                      struct rp_error *error)
{
    int code = flush(writer, &writer->blocks, error);
    if (code == 0)
        code = flush(writer, &writer->starts, error);
    info->block_count = writer->blocks.entries;
    info->start_count = writer->starts.entries;
    if (info->start_count > 0)
        info->documents = info->start_count - 1;
    info->content = rp_hasher_finish(&writer->blocks.hasher);
    struct rp_hash128 table = rp_hasher_finish(&writer->starts.hasher);
    if (info->start_count > 0) {
        info->index_bytes = 8 * info->start_count;
        info->index_content = table;
        if (code == 0)
            code = sample_starts(writer, info, error);
    }
    uint8_t header[RP_SIDECAR_HEADER_BYTES];
    encode(info, header);
    if (code == 0)
        code = rp_file_write_at(writer->file.fd, writer->path, header, sizeof header, 0, error);
    if (code == 0)
        code = rp_new_file_publish(&writer->file, error);
    rp_sidecar_discard(writer);
    return code;
}

void rp_sidecar_discard(struct rp_sidecar_writer *writer)
{
    rp_new_file_discard(&writer->file);
    free(writer->path);
    writer->path = NULL;
}
