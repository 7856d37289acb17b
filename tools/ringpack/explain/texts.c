/* SPDX-License-Identifier: Apache-2.0 */
/* texts.c — the ids of fragments, read from the files of the corpus, and their text.
 *
 * A shard may say which tokenizer made it (PREFIX.tokens.json, which `ringpack convert` writes).
 * Its file is searched next to the shard, and used if its hash is the recorded one. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "flow/fragment.h"
#include "explain/explain.h"

#define ORIGIN_BYTES_MAX (1u << 20)
#define TOKENIZER_BYTES_MAX (256u << 20)
#define NO_SHARD UINT32_MAX

void rp_texts_open(struct rp_texts *texts, const struct rp_corpus *corpus, const char *tokenizer,
                   const struct rp_row_form *form)
{
    *texts = (struct rp_texts){.corpus = corpus,
                               .tokenizer = tokenizer,
                               .form = *form,
                               .shard = NO_SHARD,
                               .fd = -1,
                               .shard_decoder = -1};
}

void rp_texts_close(struct rp_texts *texts)
{
    for (size_t i = 0; i < texts->decoder_count; i++) {
        rp_decoder_close(&texts->decoders[i]);
        free(texts->decoder_names[i]);
    }
    for (size_t i = 0; i < texts->hash_count; i++)
        free(texts->hashes[i].path);
    if (texts->fd >= 0)
        close(texts->fd);
    free(texts->ids);
    const struct rp_row_form form = texts->form;
    rp_texts_open(texts, texts->corpus, texts->tokenizer, &form);
}

/* ---- which tokenizer ------------------------------------------------------------------------- */

/* PREFIX.tokens.json of PREFIX.bin; NULL if it does not exist. */
static json_t *origin_of(const char *path)
{
    size_t bytes, length = strlen(path);
    char *text = NULL;
    if (rp_text_has_suffix(path, ".bin"))
        length -= strlen(".bin");
    char *name = rp_asprintf("%.*s.tokens.json", (int)length, path);
    json_t *origin = NULL;
    if (name && rp_file_read_all(name, ORIGIN_BYTES_MAX, &text, &bytes, NULL) == 0) {
        origin = json_loadb(text, bytes, 0, NULL);
        free(text);
    }
    free(name);
    return origin;
}

/* The hash of a file; empty if the file cannot be read. */
static void hash_file(const char *path, char hex[RP_HASH_HEX_BYTES])
{
    char *text;
    size_t bytes;
    hex[0] = '\0';
    if (rp_file_read_all(path, TOKENIZER_BYTES_MAX, &text, &bytes, NULL) < 0)
        return;
    rp_hash128_hex(rp_hash128(text, bytes), hex);
    free(text);
}

/* Whether a file has that hash; no hash is said of tokenizers that are not files. Rows go from
 * shard to shard and mostly name one tokenizer, so hashes are kept. */
static bool has_hash(struct rp_texts *texts, const char *path, const char *hash)
{
    char hex[RP_HASH_HEX_BYTES];
    if (!hash)
        return false;
    for (size_t i = 0; i < texts->hash_count; i++)
        if (!strcmp(texts->hashes[i].path, path))
            return !strcmp(texts->hashes[i].hex, hash);
    hash_file(path, hex);
    char *copy = texts->hash_count < RP_DECODERS_MAX ? strdup(path) : NULL;
    if (copy) {
        struct rp_tokenizer_hash *kept = &texts->hashes[texts->hash_count++];
        kept->path = copy;
        memcpy(kept->hex, hex, sizeof hex);
    }
    return !strcmp(hex, hash);
}

/* The tokenizer of a shard, "bytes" or a path; NULL if it is not known. The caller frees it. */
static char *tokenizer_of(struct rp_texts *texts, const char *path)
{
    json_t *origin = origin_of(path), *said = json_object_get(origin, "tokenizer");
    const char *name = json_string_value(json_object_get(said, "name"));
    const char *hash = json_string_value(json_object_get(said, "xxh3_128"));
    const char *given = texts->tokenizer;
    char *directory = rp_path_directory(path), *found = NULL;
    if (given && hash && !has_hash(texts, given, hash) && !texts->has_warned_tokenizer) {
        texts->has_warned_tokenizer = true;
        rp_log(RP_LOG_WARNING,
               "%s was made with another tokenizer (%s, hash %s): its text is wrong", path,
               name ? name : "no name", hash);
    }
    if (given || (name && !strcmp(name, "bytes")))
        found = strdup(given ? given : name);
    else if (name && directory && !strchr(name, '/'))
        found = rp_asprintf("%s/%s", directory, name);
    if (found && !given && strcmp(found, "bytes") != 0 && !has_hash(texts, found, hash)) {
        free(found);
        found = NULL;
    }
    free(directory);
    json_decref(origin);
    return found;
}

/* Set the decoder of the shard; -1 if its tokenizer is not known. Takes the name. */
static int choose_decoder(struct rp_texts *texts, char *name, struct rp_error *error)
{
    texts->shard_decoder = -1;
    if (!name)
        return 0;
    size_t i = 0;
    while (i < texts->decoder_count && strcmp(texts->decoder_names[i], name) != 0)
        i++;
    if (i < texts->decoder_count || i == RP_DECODERS_MAX) {
        free(name);
        texts->shard_decoder = i < RP_DECODERS_MAX ? (int)i : -1;
        return 0;
    }
    int code = texts->is_without ? -1 : rp_decoder_open(&texts->decoders[i], name, error);
    if (code < 0) {
        free(name);
        if (texts->tokenizer)
            return code;
        if (!texts->is_without)
            rp_log(RP_LOG_WARNING, "%s; token ids are shown", error->message);
        texts->is_without = true;
        return 0;
    }
    texts->decoder_names[i] = name;
    texts->decoder_count++;
    texts->shard_decoder = (int)i;
    return 0;
}

/* ---- ids ------------------------------------------------------------------------------------- */

static int open_shard(struct rp_texts *texts, uint32_t number, struct rp_error *error)
{
    const struct rp_shard *shard = rp_corpus_shard(texts->corpus, number);
    struct rp_error reason;
    if (texts->shard == number)
        return 0;
    if (texts->fd >= 0)
        close(texts->fd);
    texts->shard = number;
    texts->fd = shard->url ? -1 : rp_file_open_read(shard->path, NULL, &reason);
    if (texts->fd < 0 && !texts->has_warned) {
        texts->has_warned = true;
        rp_log(RP_LOG_WARNING, "%s: its tokens are not shown: %s", shard->path,
               shard->url ? "objects in stores are not read here" : reason.message);
    }
    return choose_decoder(texts, tokenizer_of(texts, shard->path), error);
}

/* Bytes of the open shard, in whole blocks where blocks have hashes. */
struct stretch {
    uint8_t *data;
    uint64_t begin, bytes;
};

/* Tokens that changed after the corpus was indexed were delivered by no step. */
static int verify(const struct rp_shard *shard, const struct stretch *stretch,
                  struct rp_error *error)
{
    for (uint64_t at = 0; at < stretch->bytes; at += RP_BLOCK_BYTES) {
        uint64_t block = (stretch->begin + at) / RP_BLOCK_BYTES;
        uint64_t length = rp_min_u64(RP_BLOCK_BYTES, stretch->bytes - at);
        uint64_t expected = shard->block_hashes[block],
                 found = rp_hash64(stretch->data + at, length);
        if (found == expected)
            continue;
        int code = rp_shard_check_sidecar(shard, error);
        return code < 0 ? code
                        : rp_fail(error, -RP_E_CORRUPT,
                                  "restore the file; `--limit 0` leaves out ids and text",
                                  "%s: block %" PRIu64 " differs from its sidecar, so its tokens "
                                  "are not those that were indexed: expected hash %016" PRIx64
                                  ", found %016" PRIx64,
                                  shard->path, block, expected, found);
    }
    return 0;
}

/* Read at least `bytes` bytes at `at`, and compare them with their hashes. */
static int read_stretch(const struct rp_texts *texts, const struct rp_shard *shard, uint64_t at,
                        uint64_t bytes, struct stretch *stretch, struct rp_error *error)
{
    uint64_t end = at + bytes;
    *stretch = (struct stretch){.begin = at};
    if (shard->block_hashes) {
        stretch->begin = at - at % RP_BLOCK_BYTES;
        end = rp_min_u64(rp_div_up(end, RP_BLOCK_BYTES) * RP_BLOCK_BYTES, shard->bytes);
    }
    stretch->bytes = end - stretch->begin;
    stretch->data = malloc(stretch->bytes + 1);
    if (!stretch->data)
        return rp_fail(error, -ENOMEM, NULL, "no memory for %" PRIu64 " bytes", stretch->bytes);
    int code = rp_file_read_at(texts->fd, shard->path, stretch->data, stretch->bytes,
                               stretch->begin, error);
    return code == 0 && shard->block_hashes ? verify(shard, stretch, error) : code;
}

int rp_texts_read(struct rp_texts *texts, const struct rp_fragment *fragment,
                  struct rp_error *error)
{
    struct rp_extent extent;
    struct stretch stretch = {.data = NULL};
    const struct rp_source *source = rp_corpus_source(texts->corpus, fragment->source);
    int code = rp_source_extent(source, fragment->document, &extent, error);
    if (code == 0)
        code = open_shard(texts, extent.shard, error);
    if (code < 0 || texts->fd < 0)
        return code;
    const struct rp_transfer transfer = {
        .fragment = *fragment, .extra = rp_transfer_extra(&texts->form, fragment, extent.tokens)};
    uint64_t at = extent.byte_offset +
                  rp_fragment_first_own(fragment, texts->form.has_bos) * extent.width;
    uint32_t bos = transfer.extra & RP_EXTRA_BOS, own = rp_transfer_own(&transfer);
    if (!RP_GROW(texts->ids, texts->id_capacity, fragment->length))
        code = rp_fail(error, -ENOMEM, NULL, "no memory for %" PRIu32 " tokens", fragment->length);
    if (code == 0 && own > 0)
        code = read_stretch(texts, rp_corpus_shard(texts->corpus, extent.shard), at,
                            (uint64_t)own * extent.width, &stretch, error);
    const uint8_t *raw = stretch.data ? stretch.data + (at - stretch.begin) : NULL;
    if (code == 0 && bos)
        texts->ids[0] = texts->form.bos_id;
    for (uint32_t i = 0; code == 0 && i < own; i++) {
        uint64_t id = 0;
        memcpy(&id, raw + (size_t)i * extent.width, extent.width);
        texts->ids[bos + i] = (uint32_t)id;
    }
    if (code == 0 && transfer.extra & RP_EXTRA_EOS)
        texts->ids[fragment->length - 1] = texts->form.eos_id;
    free(stretch.data);
    return code == 0 ? 1 : code;
}

int rp_texts_text(struct rp_texts *texts, uint32_t length, char **text_out, struct rp_error *error)
{
    *text_out = NULL;
    if (texts->shard_decoder < 0)
        return 0;
    int code = rp_decoder_decode(&texts->decoders[texts->shard_decoder], texts->ids, length,
                                 text_out, error);
    return code < 0 ? code : 1;
}
