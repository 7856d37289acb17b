/* SPDX-License-Identifier: Apache-2.0 */
#include "stream_unseen.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "plan/token_records.h"

#define FILE_BYTES_MAX (64u << 20)
#define EXPORT "`ringpack checkpoint export PATH -o FILE.token` writes such a file"

/* Take the token at the head of `data`; an array of a trainer has zeros after it. */
static int take(const char *path, const void *data, size_t bytes, char **token, size_t *length,
                struct rp_error *error)
{
    enum { BYTES_AT = offsetof(struct rp_state_header, bytes), HASH_BYTES = 16 };
    if (bytes < sizeof(struct rp_state_header) ||
        memcmp(data, RP_TOKEN_MAGIC, sizeof RP_TOKEN_MAGIC) != 0)
        return rp_fail(error, -RP_E_CONFIG, EXPORT,
                       "%s: expected a state token or a checkpoint, found neither", path);
    *length = (size_t)rp_min_u64(bytes, rp_load_u32((const uint8_t *)data + BYTES_AT));
    *token = *length > HASH_BYTES ? malloc(*length) : NULL;
    if (*length <= HASH_BYTES)
        return rp_fail(error, -RP_E_CORRUPT, "bring back the file as it was",
                       "%s: the state token is damaged: its length is %zu", path, *length);
    if (!*token)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a state token", path);
    memcpy(*token, data, *length);
    return 0;
}

static int take_checkpoint(const char *path, char **token, size_t *length, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint;
    size_t bytes;
    int code = rp_checkpoint_open(&checkpoint, path, error);
    if (code < 0)
        return code;
    const void *section = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes);
    code = take(path, section, bytes, token, length, error);
    rp_checkpoint_close(checkpoint);
    return code;
}

static int read_state(const char *path, char **token, size_t *length, struct rp_error *error)
{
    struct stat info;
    char *data;
    size_t bytes;
    *token = NULL;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) /* its newest checkpoint changes */
        return rp_fail(error, -RP_E_CONFIG, EXPORT,
                       "%s: expected the file of a state, which stays as it is; found a directory",
                       path);
    if (rp_checkpoint_is_file(path))
        return take_checkpoint(path, token, length, error);
    int code = rp_file_read_all(path, FILE_BYTES_MAX, &data, &bytes, error);
    if (code == -ENOENT)
        return rp_fail(error, code,
                       "bring the file back: a stream with unseen_of needs it at every start",
                       "%s: no such file", path);
    if (code < 0)
        return code;
    code = take(path, data, bytes, token, length, error);
    free(data);
    return code;
}

static int fail_print(const char *kind, struct rp_hash128 had, struct rp_hash128 has,
                      struct rp_error *error)
{
    char a[RP_HASH_HEX_BYTES], b[RP_HASH_HEX_BYTES];
    return rp_fail(error, -RP_E_MISMATCH,
                   "list the sources of the state: all of them, in their order and their ranges",
                   "the documents differ: the %s fingerprint of the whole corpus is %s in the "
                   "state, %s in this run; a state of version 1 has no other",
                   kind, rp_hash128_hex(had, a), rp_hash128_hex(has, b));
}

/* A state of version 1 has no names, and one fingerprint of all sources. */
static int check_first(const char *token, const struct rp_config_source *source,
                       const struct rp_corpus *corpus, struct rp_error *error)
{
    struct rp_state_header header;
    struct rp_fingerprint has = rp_corpus_fingerprint(corpus);
    memcpy(&header, token, sizeof header);
    if (source->unseen_source)
        return rp_fail(error, -RP_E_CONFIG, "leave unseen_source out",
                       "unseen_source: a state of version 1 has no names, found `%.63s`",
                       source->unseen_source);
    if (!rp_hash128_equal(header.corpus_sampled, has.sampled))
        return fail_print("sampled", header.corpus_sampled, has.sampled, error);
    bool knows_full = rp_hash128_is_known(header.corpus_full) && rp_hash128_is_known(has.full);
    if (knows_full && !rp_hash128_equal(header.corpus_full, has.full))
        return fail_print("full", header.corpus_full, has.full, error);
    return 0;
}

static int check_selection(const struct rp_unseen *unseen, const struct rp_unseen_source *source,
                           struct rp_error *error)
{
    const struct rp_source_view *view = source->view;
    uint64_t had = rp_unseen_facts(unseen)->selection;
    struct rp_source_prints has;
    int code = had ? view->prints(view->context, rp_unseen_facts(unseen)->documents, &has, error)
                   : 0;
    if (code < 0 || had == 0 || had == has.selection)
        return code;
    return rp_fail(error, -RP_E_MISMATCH,
                   "give this source the select and repeat of the source in the state, which may "
                   "not have unseen_of itself",
                   "unseen_of: the selection of source %s is %016" PRIx64
                   " in the state, %016" PRIx64 " in this run",
                   source->name, had, has.selection);
}

int rp_used_open(struct rp_unseen **unseen_out, const struct rp_config *config, uint32_t number,
                 const struct rp_corpus *corpus, const struct rp_source_view *view,
                 struct rp_error *error)
{
    const struct rp_config_source *given = &config->sources[number];
    const struct rp_source *source = rp_corpus_source(corpus, number);
    const struct rp_unseen_source of = {.name = given->unseen_source ? given->unseen_source
                                                                     : rp_source_name(source),
                                        .number = number,
                                        .view = view,
                                        .documents = rp_source_documents(source)};
    char *token;
    size_t bytes;
    *unseen_out = NULL;
    int code = read_state(given->unseen_of, &token, &bytes, error);
    if (code < 0)
        return code;
    code = rp_unseen_open(unseen_out, token, bytes, &of, error);
    if (code == 0 &&
        rp_load_u32((const uint8_t *)token + offsetof(struct rp_state_header, version)) <
            RP_TOKEN_VERSION_CALENDAR)
        code = check_first(token, given, corpus, error);
    if (code == 0)
        code = check_selection(*unseen_out, &of, error);
    if (code < 0) {
        rp_unseen_close(*unseen_out);
        *unseen_out = NULL;
        code = rp_fail_context(error, code, "%s", given->unseen_of);
    }
    free(token);
    return code;
}
