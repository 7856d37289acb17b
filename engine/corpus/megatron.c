/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.c — see megatron.h.
 *
 * The index, little-endian: magic "MMIDIDX\0\0" (9 bytes), u64 version 1, u8 dtype code, u64 N
 * sequences, u64 D, then i32 lengths[N] in tokens, i64 pointers[N] in bytes of the .bin, i64
 * first[D]: the first sequence of every document, and N. So there are D - 1 documents. Multimodal
 * datasets append i8 modes[N] without a flag; only the size of the file shows it. The header has 34
 * bytes, so no array is aligned. */
#include "corpus/megatron.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/available.h"
#include "base/bits.h"
#include "base/mem.h"
#include "corpus/fingerprint.h"
#include "corpus/reader.h"

#define HEADER_BYTES 34u
/* From this size on an .idx may not be in memory, and its reads are announced to the kernel. */
#define LARGE_INDEX_BYTES (1u << 30)
#define PLAIN_RUN 64u /* documents that are checked together */
#define HINT                                                                                       \
    "the .idx and the .bin do not belong together, or one was cut short: copy or write both again"

/* The codes diverge between writers from 6 on, so a refusal names the meaning of each writer. */
static const struct {
    enum rp_token_type type;
    const char *name;
} codes[] = {
    [1] = {RP_TOKEN_U8, "uint8"},
    [2] = {RP_TOKEN_NONE, "int8"},
    [3] = {RP_TOKEN_I16, "int16"},
    [4] = {RP_TOKEN_I32, "int32"},
    [5] = {RP_TOKEN_I64, "int64"},
    [6] = {RP_TOKEN_NONE, "float64 (Megatron) or float32 (gpt-neox)"},
    [7] = {RP_TOKEN_NONE, "float32 (Megatron) or float64 (gpt-neox)"},
    [8] = {RP_TOKEN_U16, "uint16"},
    [9] = {RP_TOKEN_U32, "uint32 (metaseq)"},
    [10] = {RP_TOKEN_NONE, "uint64 (metaseq)"},
};

static int check_header(struct rp_megatron *megatron, enum rp_token_type declared,
                        struct rp_error *error)
{
    const char *path = megatron->path;
    const uint8_t *data = megatron->map.data;
    uint64_t bytes = megatron->map.bytes;
    if (bytes >= 8 && !memcmp(data, "TNTIDX\0\0", 8))
        return rp_fail(error, -RP_E_FORMAT, "convert it with Megatron's own tools to MMIDIDX",
                       "%s: expected the magic MMIDIDX, found TNTIDX, the legacy index of fairseq",
                       path);
    if (bytes < HEADER_BYTES)
        return rp_fail(error, bytes ? -RP_E_CORRUPT : -RP_E_EMPTY, HINT,
                       "%s: expected a header of %u bytes, found %" PRIu64 " bytes", path,
                       HEADER_BYTES, bytes);
    if (memcmp(data, "MMIDIDX\0\0", 9))
        return rp_fail(error, -RP_E_FORMAT, "give the prefix or the .bin of a Megatron dataset",
                       "%s: expected the magic MMIDIDX, found something else", path);
    if (rp_load_u64(data + 9) != 1)
        return rp_fail(error, -RP_E_VERSION, NULL, "%s: version: expected 1, found %" PRIu64, path,
                       rp_load_u64(data + 9));
    uint8_t code = data[17];
    const char *name = code > 0 && code < RP_ARRAY_COUNT(codes) ? codes[code].name : "unknown";
    megatron->type = code < RP_ARRAY_COUNT(codes) ? codes[code].type : RP_TOKEN_NONE;
    if (megatron->type == RP_TOKEN_NONE)
        return rp_fail(
            error, -RP_E_FORMAT, "tokens are integers; write the dataset again as uint16 or int32",
            "%s: dtype code: expected 1, 3, 4, 5, 8 or 9 (u8 i16 i32 i64 u16 u32), found %u: %s",
            path, code, name);
    return rp_readers_check_type(megatron->token_path, declared, megatron->type, error);
}

/* The three arrays (and the modes) fill the file exactly, or it was cut short. */
static int check_size(struct rp_megatron *megatron, struct rp_error *error)
{
    const uint8_t *data = megatron->map.data;
    uint64_t found = megatron->map.bytes, sequences = rp_load_u64(data + 18),
             entries = rp_load_u64(data + 26);
    uint64_t arrays, first_bytes, expected;
    if (!rp_mul_u64(sequences, 12, &arrays) || !rp_mul_u64(entries, 8, &first_bytes) ||
        !rp_add_u64(arrays, first_bytes, &expected) ||
        !rp_add_u64(expected, HEADER_BYTES, &expected))
        return rp_fail(error, -RP_E_CORRUPT, HINT,
                       "%s: counts: %" PRIu64 " sequences and %" PRIu64
                       " document entries overflow",
                       megatron->path, sequences, entries);
    megatron->has_modes = sequences > 0 && found - expected == sequences && found > expected;
    if (found != expected && !megatron->has_modes)
        return rp_fail(error, -RP_E_CORRUPT, HINT,
                       "%s: %" PRIu64 " sequences and %" PRIu64
                       " document entries: expected %" PRIu64 " bytes, found %" PRIu64,
                       megatron->path, sequences, entries, expected, found);
    if (entries == 0)
        return rp_fail(error, -RP_E_CORRUPT, HINT,
                       "%s: document entries: expected at least 1, found 0", megatron->path);
    megatron->sequences = sequences;
    megatron->width_shift = (unsigned)__builtin_ctz(rp_token_width(megatron->type));
    megatron->lengths = data + HEADER_BYTES;
    megatron->pointers = megatron->lengths + 4 * sequences;
    megatron->first = megatron->pointers + 8 * sequences;
    megatron->documents = entries - 1;
    return 0;
}

/* The ends of the arrays say how long the .bin must be: this finds a .bin that was cut short at
 * once. */
static int check_ends(struct rp_megatron *megatron, struct rp_error *error)
{
    const char *path = megatron->path;
    uint64_t begin = rp_load_u64(megatron->first);
    uint64_t end = rp_load_u64(megatron->first + 8 * megatron->documents);
    if (begin != 0 || end != megatron->sequences)
        return rp_fail(error, -RP_E_CORRUPT, HINT,
                       "%s: document entries: expected 0 to %" PRIu64 ", found %" PRId64
                       " to %" PRId64,
                       path, megatron->sequences, (int64_t)begin, (int64_t)end);
    if (megatron->sequences == 0 && megatron->token_bytes > 0)
        return rp_fail(error, -RP_E_CORRUPT, HINT,
                       "%s: expected the sequences of %s, which has %" PRIu64 " bytes, found none",
                       path, megatron->token_path, megatron->token_bytes);
    if (megatron->sequences == 0)
        return 0;
    uint64_t last = megatron->sequences - 1, expected;
    int64_t length = (int32_t)rp_load_u32(megatron->lengths + 4 * last);
    uint64_t pointer = rp_load_u64(megatron->pointers + 8 * last);
    if (length < 0 || pointer > INT64_MAX ||
        !rp_add_u64(pointer, (uint64_t)length * rp_token_width(megatron->type), &expected))
        return rp_fail(error, -RP_E_CORRUPT, HINT,
                       "%s: last sequence: %" PRId64 " tokens at byte %" PRId64
                       " is no place in a file",
                       path, length, (int64_t)pointer);
    if (megatron->token_bytes < expected)
        return rp_fail(error, -RP_E_CORRUPT, HINT,
                       "%s: truncated: expected at least %" PRIu64
                       " bytes (from %s), found %" PRIu64,
                       megatron->token_path, expected, path, megatron->token_bytes);
    megatron->tokens = expected / rp_token_width(megatron->type);
    return 0;
}

/* The bytes of the .bin that a sequence takes up, or its fault. */
static const char *locate_sequence(const struct rp_megatron *megatron, uint64_t sequence,
                                   uint64_t *begin, uint64_t *end)
{
    unsigned shift = megatron->width_shift;
    int32_t length = (int32_t)rp_load_u32(megatron->lengths + 4 * sequence);
    uint64_t pointer = rp_load_u64(megatron->pointers + 8 * sequence);
    if (length < 0)
        return "a sequence has a negative length";
    uint64_t bytes = (uint64_t)length << shift;
    if (pointer & ((1u << shift) - 1) || !rp_range_inside(pointer, bytes, megatron->token_bytes))
        return "it is outside the .bin, or between two tokens";
    *begin = pointer;
    *end = pointer + bytes;
    return NULL;
}

static const char *locate_sequences(const struct rp_megatron *megatron, uint64_t document,
                                    uint64_t *tokens, uint64_t *byte_offset)
{
    uint64_t first = rp_load_u64(megatron->first + 8 * document);
    uint64_t last = rp_load_u64(megatron->first + 8 * document + 8);
    if (first > last || last > megatron->sequences)
        return "its sequences are outside the index";
    uint64_t document_begin = 0, document_end = 0;
    for (uint64_t s = first; s < last; s++) {
        uint64_t begin, end;
        const char *problem = locate_sequence(megatron, s, &begin, &end);
        if (problem)
            return problem;
        if (s == first)
            document_begin = begin;
        else if (begin != document_end)
            return "its sequences are not contiguous in the .bin";
        document_end = end;
    }
    *tokens = (document_end - document_begin) >> megatron->width_shift;
    *byte_offset = document_begin;
    return NULL;
}

const char *rp_megatron_locate(const struct rp_megatron *megatron, bool is_plain, uint64_t document,
                               uint64_t *tokens, uint64_t *byte_offset)
{
    uint64_t begin, end;
    if (!is_plain)
        return locate_sequences(megatron, document, tokens, byte_offset);
    RP_DASSERT(document < megatron->sequences); /* else is_next_plain had refused it */
    const char *problem = locate_sequence(megatron, document, &begin, &end);
    if (problem)
        return problem;
    *tokens = (end - begin) >> megatron->width_shift;
    *byte_offset = begin;
    return NULL;
}

/* ---- plain documents ------------------------------------------------------------------------- */

/* Is the document plain, if all before it are? Then its first sequence has its number already. */
static bool is_next_plain(const struct rp_megatron *megatron, uint64_t document)
{
    uint64_t begin, end;
    return rp_load_u64(megatron->first + 8 * document + 8) == document + 1 &&
           document < megatron->sequences && !locate_sequence(megatron, document, &begin, &end);
}

/* is_next_plain for a run of documents, without a branch, so that the compiler checks several at
 * once. It may refuse a document that is_next_plain takes (one at or above byte 2^62), never the
 * other way: the place is below 2^62, the document below 2^34 bytes and the file below 2^63, so the
 * last difference does not overflow, and is negative if the document ends outside. */
static bool is_next_run_plain(const struct rp_megatron *megatron, uint64_t document)
{
    uint64_t file_bytes = megatron->token_bytes;
    uint64_t unit = (UINT64_C(1) << megatron->width_shift) - 1;
    uint64_t odd = 0;
    for (uint64_t d = document; d < document + PLAIN_RUN; d++) {
        uint64_t length = rp_load_u32(megatron->lengths + 4 * d);
        uint64_t begin = rp_load_u64(megatron->pointers + 8 * d);
        odd |= rp_load_u64(megatron->first + 8 * d + 8) ^ (d + 1);
        odd |= length >> 31 | begin >> 62 | (begin & unit);
        odd |= (file_bytes - begin - (length << megatron->width_shift)) >> 63;
    }
    return odd == 0;
}

static uint64_t find_plain(const struct rp_megatron *megatron, uint64_t plain, uint64_t count)
{
    uint64_t last = plain + rp_min_u64(count, megatron->documents - plain);
    uint64_t runs_end = rp_min_u64(last, megatron->sequences);
    while (plain + PLAIN_RUN <= runs_end && is_next_run_plain(megatron, plain))
        plain += PLAIN_RUN;
    while (plain < last && is_next_plain(megatron, plain))
        plain++;
    return plain;
}

/* A hint to the kernel: read a part of an array from the disk, if it is not in memory. */
static void will_need(const uint8_t *array, uint64_t entry_bytes, uint64_t first, uint64_t count)
{
    uintptr_t begin = rp_align_down((uintptr_t)array + first * entry_bytes, RP_BLOCK_BYTES);
    uintptr_t end = (uintptr_t)array + (first + count) * entry_bytes;
    (void)madvise((void *)begin, end - begin, MADV_WILLNEED);
}

uint64_t rp_megatron_check_ahead(const struct rp_megatron *megatron, uint64_t plain, uint64_t count)
{
    count = rp_min_u64(count, megatron->documents - plain);
    if (megatron->map.bytes >= LARGE_INDEX_BYTES && plain + count <= megatron->sequences) {
        will_need(megatron->lengths, 4, plain, count);
        will_need(megatron->pointers, 8, plain, count);
        will_need(megatron->first, 8, plain, count);
    }
    return find_plain(megatron, plain, count);
}

/* Assume that the document is plain. If the .idx does not fit in memory, its missing pages are read
 * at the same time: many times faster than one after the other, at each access. */
void rp_megatron_prefetch(const struct rp_megatron *megatron, uint64_t document)
{
    __builtin_prefetch(megatron->first + 8 * document);
    if (document >= megatron->sequences)
        return;
    __builtin_prefetch(megatron->lengths + 4 * document);
    __builtin_prefetch(megatron->pointers + 8 * document);
    if (!megatron->exceeds_memory)
        return;
    will_need(megatron->first, 8, document, 2);
    will_need(megatron->lengths, 4, document, 1);
    will_need(megatron->pointers, 8, document, 1);
}

void rp_megatron_prefetch_extent(const struct rp_megatron *megatron, uint64_t document)
{
    if (document < megatron->sequences)
        __builtin_prefetch(megatron->pointers + 8 * document);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int check_documents(struct rp_megatron *megatron, uint64_t *plain_out,
                           struct rp_error *error)
{
    uint64_t total = 0, d = 0, plain = find_plain(megatron, 0, megatron->documents);
    for (; d < plain; d++)
        total += rp_load_u32(megatron->lengths + 4 * d);
    for (; d < megatron->documents; d++) {
        uint64_t tokens, offset;
        const char *problem = locate_sequences(megatron, d, &tokens, &offset);
        if (problem)
            return rp_fail(error, -RP_E_CORRUPT, HINT, "%s: document %" PRIu64 ": %s",
                           megatron->path, d, problem);
        total += tokens;
    }
    megatron->tokens = total;
    *plain_out = plain;
    return 0;
}

static int check_index(struct rp_megatron *megatron, enum rp_token_type declared,
                       uint64_t *plain_out, struct rp_error *error)
{
    int code = check_header(megatron, declared, error);
    if (code == 0)
        code = check_size(megatron, error);
    if (code == 0)
        code = check_ends(megatron, error);
    if (code == 0 && megatron->documents <= RP_CHECK_ALL_MAX)
        code = check_documents(megatron, plain_out, error);
    return code;
}

/* The kernel reads around an access to a mapped file, as far as the disk is set to: 8 MiB at times.
 * If the file does not fit in memory, that evicts pages before they are used. */
static void expect_random_reads(struct rp_megatron *megatron)
{
    const struct rp_map *map = &megatron->map;
    megatron->exceeds_memory = map->bytes >= LARGE_INDEX_BYTES &&
                               map->bytes > rp_memory_available().bytes / 2;
    if (megatron->exceeds_memory)
        (void)madvise((void *)(uintptr_t)map->data, (size_t)map->bytes, MADV_RANDOM);
}

void rp_megatron_read_through(struct rp_megatron *megatron)
{
    const struct rp_map *map = &megatron->map;
    if (megatron->exceeds_memory)
        (void)madvise((void *)(uintptr_t)map->data, (size_t)map->bytes, MADV_SEQUENTIAL);
    megatron->exceeds_memory = false;
}

/* The map and the sample are of one file, whatever happens to its name. */
int rp_megatron_open(struct rp_megatron *megatron, enum rp_token_type declared, uint64_t *plain_out,
                     struct rp_error *error)
{
    const char *path = megatron->path;
    uint64_t bytes;
    *plain_out = 0;
    int fd = rp_file_open_read(path, &bytes, error);
    if (fd < 0)
        return fd;
    int code = rp_map_file(&megatron->map, fd, bytes, path, error);
    if (code == 0) {
        expect_random_reads(megatron);
        code = check_index(megatron, declared, plain_out, error);
    }
    if (code == 0 && bytes <= RP_INDEX_HASH_WHOLE_MAX)
        megatron->sample = rp_hash128(megatron->map.data, (size_t)bytes);
    else if (code == 0)
        code = rp_idx_sample(fd, path, bytes, &megatron->sample, error);
    close(fd);
    return code;
}

void rp_megatron_close(struct rp_megatron *megatron)
{
    rp_map_close(&megatron->map);
}

int rp_megatron_check_time(const char *token_path, uint64_t mtime_ns, struct rp_error *error)
{
    struct rp_stamp found;
    char *path = rp_asprintf("%.*s.idx", (int)(strlen(token_path) - 4), token_path);
    if (!path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", token_path);
    int code = 0; /* a run with a corpus index does not need it */
    if (rp_stamp_at(path, &found) == 0 && found.mtime_ns != mtime_ns)
        code = rp_fail(error, -RP_E_CHANGED,
                       "restore the file, and its times with it (`cp -p`, `rsync -t`); or run "
                       "`ringpack index -c CONFIG`, which reads it again: if its documents are "
                       "the same, old runs can be resumed",
                       "%s: it differs from the corpus index: modification time: expected "
                       "%" PRIu64 ", found %" PRIu64,
                       path, mtime_ns, found.mtime_ns);
    free(path);
    return code;
}
