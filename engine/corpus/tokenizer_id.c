/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/tokenizer_id.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

#define FILE_BYTES_MAX 65536u

/* {"tokenizer": {"name": …, "xxh3_128": …}, …}; `bytes` needs no hash. */
static bool take_file(struct rp_tokenizer_id *id, json_t *file)
{
    json_t *tokenizer = json_object_get(file, "tokenizer");
    const char *name = json_string_value(json_object_get(tokenizer, "name"));
    const char *hash = json_string_value(json_object_get(tokenizer, "xxh3_128"));
    if (!json_is_object(file))
        return false;
    if (!tokenizer || json_is_null(tokenizer) || (name && !hash && strcmp(name, "bytes")))
        return true;
    if (!name || (hash && !rp_hash128_parse(hash, &id->hash)))
        return false;
    if (!hash)
        id->hash = rp_hash128(name, strlen(name));
    snprintf(id->name, sizeof id->name, "%s", name);
    return true;
}

int rp_ids_read_tokenizer(struct rp_tokenizer_id *id, const char *token_path,
                          struct rp_error *error)
{
    json_error_t problem = {.text = "no such object"};
    char *text = NULL;
    size_t bytes = 0, stem = rp_text_stem(token_path, ".bin");
    char *path = rp_asprintf("%.*s.tokens.json", (int)stem, token_path);
    *id = (struct rp_tokenizer_id){.name = ""};
    if (!path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", token_path);
    int code = rp_file_read_all(path, FILE_BYTES_MAX, &text, &bytes, error);
    if (code == 0) {
        json_t *file = json_loadb(text, bytes, 0, &problem);
        if (!take_file(id, file))
            code = rp_fail(error, -RP_E_FORMAT, "mend or remove it, and index the tokens again",
                           "%s: expected {\"tokenizer\": {\"name\": …, \"xxh3_128\": 32 "
                           "hexadecimal digits}}, found something else",
                           path);
        json_decref(file);
    }
    free(text);
    free(path);
    return code == -ENOENT ? 0 : code;
}

char *rp_ids_tokenizer_text(const struct rp_tokenizer_id *id, char text[RP_TOKENIZER_TEXT_BYTES])
{
    char hex[RP_HASH_HEX_BYTES];
    if (rp_ids_know_tokenizer(id))
        snprintf(text, RP_TOKENIZER_TEXT_BYTES, "%s (%s)", id->name, rp_hash128_hex(id->hash, hex));
    else
        snprintf(text, RP_TOKENIZER_TEXT_BYTES, "none declared");
    return text;
}

int rp_ids_take_tokenizer(struct rp_tokenizer_known *known, const struct rp_tokenizer_id *id,
                          const char *source, const char *path, struct rp_error *error)
{
    char expected[RP_TOKENIZER_TEXT_BYTES], found[RP_TOKENIZER_TEXT_BYTES];
    if (!rp_ids_know_tokenizer(&known->id))
        *known = (struct rp_tokenizer_known){*id, source};
    if (rp_hash128_equal(id->hash, known->id.hash))
        return 0;
    return rp_fail(
        error, -RP_E_MISMATCH,
        "a run has ids of one tokenizer: convert the source again; or, if both files "
        "are one tokenizer, give both shards one PREFIX.tokens.json and index them again",
        "%s: tokenizer: expected %s, as of source `%s`, found %s", path,
        rp_ids_tokenizer_text(&known->id, expected), known->source,
        rp_ids_tokenizer_text(id, found));
}
