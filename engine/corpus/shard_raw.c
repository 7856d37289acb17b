/* SPDX-License-Identifier: Apache-2.0 */
/* shard_raw — files in which a special token, EOS, separates the documents: raw, npy and llm.c.
 *
 * raw and npy: a document ends with EOS, which belongs to it; behind the last EOS there may be one
 * more document that was never ended. llm.c: a document begins with EOS; what stands before the
 * first EOS is the rest of a document that began in the shard before, and is a document of its own
 * here. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "corpus/npy.h"
#include "corpus/document_scan.h"
#include "corpus/shard.h"

#define LLMC_HEADER_BYTES 1024u

/* llm.c's two files: their tokens, and the EOS of the tokenizer they were made with. */
static const struct llmc_kind {
    uint32_t magic, version;
    enum rp_token_type type;
    int64_t eos;
} llmc_kinds[] = {
    {20240520, 1, RP_TOKEN_U16, 50256},  /* GPT-2, <|endoftext|> */
    {20240801, 7, RP_TOKEN_U32, 128000}, /* Llama 3, <|begin_of_text|> */
};

static int layout_llmc(struct rp_opened *opened, int fd, struct rp_error *error)
{
    const char *path = opened->found.token_path;
    uint8_t header[12];
    if (opened->shard.bytes < LLMC_HEADER_BYTES)
        return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                       "%s: truncated: expected a header of %u bytes, found %" PRIu64 " bytes",
                       path, LLMC_HEADER_BYTES, opened->shard.bytes);
    int code = rp_file_read_at(fd, path, header, sizeof header, 0, error);
    if (code < 0)
        return code;
    const struct llmc_kind *kind = NULL;
    for (size_t i = 0; i < RP_ARRAY_COUNT(llmc_kinds); i++)
        if (llmc_kinds[i].magic == rp_load_u32(header))
            kind = &llmc_kinds[i];
    if (!kind)
        return rp_fail(error, -RP_E_FORMAT, "declare another format, or none",
                       "%s: magic: expected 20240520 or 20240801 (llm.c), found %" PRIu32, path,
                       rp_load_u32(header));
    if (rp_load_u32(header + 4) != kind->version)
        return rp_fail(error, -RP_E_VERSION, NULL,
                       "%s: llm.c version: expected %" PRIu32 ", found %" PRIu32, path,
                       kind->version, rp_load_u32(header + 4));
    opened->shard.type = kind->type;
    opened->token_offset = LLMC_HEADER_BYTES;
    if (opened->found.eos == RP_EOS_NONE)
        opened->found.eos = kind->eos;
    int64_t tokens = (int32_t)rp_load_u32(header + 8);
    uint64_t expected = LLMC_HEADER_BYTES +
                        (tokens < 0 ? 0 : (uint64_t)tokens) * rp_token_width(kind->type);
    if (tokens < 0 || expected != opened->shard.bytes)
        return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                       "%s: the header says %" PRId64 " tokens: expected %" PRIu64
                       " bytes, found %" PRIu64,
                       path, tokens, expected, opened->shard.bytes);
    return rp_found_check_type(&opened->found, kind->type, error);
}

static int layout_plain(struct rp_opened *opened, struct rp_error *error)
{
    if (opened->found.type == RP_TOKEN_NONE)
        return rp_fail(error, -RP_E_FORMAT, "declare its dtype, for instance `--dtype u16`",
                       "%s: raw tokens do not say how wide they are, and no dtype was declared",
                       opened->found.token_path);
    opened->shard.type = opened->found.type;
    opened->token_offset = 0;
    return 0;
}

static void layout_from_sidecar(struct rp_opened *opened)
{
    const struct rp_sidecar_info *info = &opened->found.sidecar.info;
    opened->shard.type = info->type;
    opened->token_offset = info->token_offset;
    if (opened->found.eos == RP_EOS_NONE)
        opened->found.eos = info->eos;
}

int rp_raw_layout(struct rp_opened *opened, int fd, struct rp_error *error)
{
    int code = 0;
    if (fd < 0)
        layout_from_sidecar(opened);
    else if (opened->found.format == RP_FORMAT_LLMC)
        code = layout_llmc(opened, fd, error);
    else if (opened->found.format == RP_FORMAT_NPY)
        code = rp_npy_layout(opened, fd, error);
    else
        code = layout_plain(opened, error);
    if (code < 0)
        return code;
    uint32_t width = rp_token_width(opened->shard.type);
    uint64_t bytes = opened->shard.bytes - opened->token_offset;
    if (bytes % width != 0)
        return rp_fail(error, -RP_E_FORMAT, "was the file cut short, or is the dtype another one?",
                       "%s: expected a multiple of %u bytes of %s tokens, found %" PRIu64 " bytes",
                       opened->found.token_path, width, rp_token_type_name(opened->shard.type),
                       bytes);
    opened->shard.tokens = bytes / width;
    if (bytes == 0)
        return rp_fail(error, -RP_E_EMPTY, "remove it from the list of shards, or write it again",
                       "%s: expected tokens, found none behind the header",
                       opened->found.token_path);
    return rp_raw_check_eos(opened, error);
}

int rp_raw_check_eos(const struct rp_opened *opened, struct rp_error *error)
{
    int64_t eos = opened->found.eos;
    if (eos == RP_EOS_NONE)
        return rp_fail(error, -RP_E_FORMAT,
                       "declare it, for instance `--eos 50256` for the GPT-2 tokenizer",
                       "%s: documents are separated by an EOS token, and no eos was declared",
                       opened->found.token_path);
    uint32_t bits = rp_token_bits(opened->shard.type);
    if (eos < 0 || (uint64_t)eos >> bits != 0)
        return rp_fail(error, -RP_E_FORMAT, "declare an eos that the tokens can hold",
                       "%s: eos: expected 0 to %" PRIu64 " (%s), found %" PRId64,
                       opened->found.token_path, (UINT64_C(1) << bits) - 1,
                       rp_token_type_name(opened->shard.type), eos);
    return 0;
}

/* A document table that grows while a small file is scanned. */
struct starts_list {
    uint64_t *entries;
    size_t count, capacity;
};

static int keep_starts(void *context, const uint8_t *bytes, size_t byte_count,
                       const uint64_t *starts, size_t start_count, struct rp_error *error)
{
    (void)bytes;
    (void)byte_count;
    struct starts_list *list = context;
    if (list->capacity - list->count < start_count) {
        size_t capacity = 2 * list->capacity + start_count + 1024;
        uint64_t *entries = realloc(list->entries, capacity * sizeof *entries);
        if (!entries)
            return rp_fail(error, -ENOMEM,
                           "run `ringpack index` on the file: the table is then mapped",
                           "no memory for a table of %zu documents", capacity);
        list->entries = entries;
        list->capacity = capacity;
    }
    memcpy(list->entries + list->count, starts, start_count * sizeof *starts);
    list->count += start_count;
    return 0;
}

static int scan_documents(struct rp_opened *opened, int fd, struct rp_error *error)
{
    struct rp_document_scan scan;
    struct starts_list list = {0};
    rp_document_scan_begin(&scan, opened->shard.type, opened->found.eos,
                           opened->found.format == RP_FORMAT_LLMC);
    int code = rp_tokens_read(opened, fd, &scan, keep_starts, &list, NULL, error);
    opened->starts = opened->starts_scanned = list.entries;
    if (code == 0) {
        RP_ASSERT(list.count >= 2); /* there is a token, so there is a document */
        opened->shard.documents = list.count - 1;
    }
    return code;
}

int rp_raw_documents(struct rp_opened *opened, int fd, uint64_t scan_bytes_max,
                     struct rp_error *error)
{
    if (opened->found.has_sidecar) {
        opened->starts = opened->found.sidecar.starts;
        opened->shard.documents = opened->found.sidecar.info.documents;
        return 0;
    }
    if (opened->shard.bytes <= scan_bytes_max)
        return scan_documents(opened, fd, error);
    char hint[sizeof error->hint];
    snprintf(hint, sizeof hint,
             "run `ringpack index --format %s --dtype %s --eos %" PRId64 " %s` once",
             rp_format_name(opened->found.format), rp_token_type_name(opened->shard.type),
             opened->found.eos, opened->found.token_path);
    return rp_fail(error, -RP_E_FORMAT, hint,
                   "%s: %" PRIu64
                   " bytes without an index of their documents: expected a sidecar, found none",
                   opened->found.token_path, opened->shard.bytes);
}

const char *rp_raw_locate(const struct rp_opened *opened, uint64_t document, uint64_t *tokens,
                          uint64_t *byte_offset)
{
    uint64_t begin = opened->starts[document], end = opened->starts[document + 1];
    if (begin > end || end > opened->shard.tokens)
        return "it lies outside the file";
    *tokens = end - begin;
    *byte_offset = opened->token_offset + begin * rp_token_width(opened->shard.type);
    return NULL;
}
