/* SPDX-License-Identifier: Apache-2.0 */
/* llmc.c — llm.c's .bin: a header of 1024 bytes, then tokens, each document led by EOS. */
#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "corpus/readers/eos_walk.h"

#define HEADER_BYTES 1024u

/* llm.c's two files: their tokens, and the EOS of the tokenizer they were made with. */
static const struct kind {
    uint32_t magic, version;
    enum rp_token_type type;
    int64_t eos;
} kinds[] = {
    {20240520, 1, RP_TOKEN_U16, 50256},  /* GPT-2, <|endoftext|> */
    {20240801, 7, RP_TOKEN_U32, 128000}, /* Llama 3, <|begin_of_text|> */
};

static const struct kind *kind_of(uint32_t magic)
{
    for (size_t i = 0; i < RP_ARRAY_COUNT(kinds); i++)
        if (kinds[i].magic == magic)
            return &kinds[i];
    return NULL;
}

static int claim(const struct rp_probe *probe, char why[256], struct rp_error *error)
{
    (void)error;
    uint32_t magic = rp_load_u32(probe->head);
    snprintf(why, 256, "it begins with the magic %" PRIu32 " of llm.c", magic);
    return probe->is_declared || kind_of(magic); /* declared: walk names the fault */
}

static int walk(const struct rp_probe *probe, const struct rp_reader_options *options,
                struct rp_sink *sink, struct rp_error *error)
{
    const char *path = probe->path;
    uint8_t header[12];
    if (probe->bytes < HEADER_BYTES)
        return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                       "%s: truncated: expected a header of %u bytes, found %" PRIu64 " bytes",
                       path, HEADER_BYTES, probe->bytes);
    int code = rp_file_read_at(probe->fd, path, header, sizeof header, 0, error);
    if (code < 0)
        return code;
    const struct kind *kind = kind_of(rp_load_u32(header));
    if (!kind)
        return rp_fail(error, -RP_E_FORMAT, "declare another format, or none",
                       "%s: magic: expected 20240520 or 20240801 (llm.c), found %" PRIu32, path,
                       rp_load_u32(header));
    if (rp_load_u32(header + 4) != kind->version)
        return rp_fail(error, -RP_E_VERSION, NULL,
                       "%s: llm.c version: expected %" PRIu32 ", found %" PRIu32, path,
                       kind->version, rp_load_u32(header + 4));
    int64_t tokens = (int32_t)rp_load_u32(header + 8);
    uint64_t expected = HEADER_BYTES +
                        (tokens < 0 ? 0 : (uint64_t)tokens) * rp_token_width(kind->type);
    if (tokens < 0 || expected != probe->bytes)
        return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                       "%s: the header says %" PRId64 " tokens: expected %" PRIu64
                       " bytes, found %" PRIu64,
                       path, tokens, expected, probe->bytes);
    const struct rp_layout layout = {.type = kind->type,
                                     .eos = options->eos == RP_EOS_NONE ? kind->eos : options->eos,
                                     .token_offset = HEADER_BYTES};
    return rp_eos_walk(probe, &layout, true, options, sink, error);
}

const struct rp_reader rp_reader_llmc = {
    .format = RP_FORMAT_LLMC,
    .title = "a .bin of llm.c",
    .reads_tokens = true,
    .holds_no_mask = true,
    .claim = claim,
    .walk = walk,
};
