/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_id.h — the tokenizer that made the ids of a shard, if it is known.
 *
 * The companion file PREFIX.tokens.json names it: `ringpack convert` writes one, and people may
 * write one for files of their own. `ringpack index` copies the identity into the sidecar, and all
 * shards of a corpus that have one must have the same. A side column of token ids may name its
 * tokenizer too (side_file.h). In rp_ids_…, the ids are token ids. */
#ifndef RP_CORPUS_TOKENIZER_ID_H
#define RP_CORPUS_TOKENIZER_ID_H

#include "base/fail.h"
#include "base/hash.h"

/* The name of a tokenizer, with its NUL. */
#define RP_TOKENIZER_NAME_BYTES 48u

struct rp_tokenizer_id {
    char name[RP_TOKENIZER_NAME_BYTES]; /* for people: never compared */
    struct rp_hash128 hash; /* XXH3-128 of its tokenizer.json, or of the name `bytes`; zeros: the
                               tokenizer is not known */
};

static inline bool rp_ids_know_tokenizer(const struct rp_tokenizer_id *id)
{
    return rp_hash128_is_known(id->hash);
}

#define RP_TOKENIZER_TEXT_BYTES 96u
/** "gpt2 (HASH)" for a message; "none declared" if it is not known. Returns `text`. */
char *rp_ids_tokenizer_text(const struct rp_tokenizer_id *id, char text[RP_TOKENIZER_TEXT_BYTES]);

/** The tokenizer in PREFIX.tokens.json of a token file; PREFIX is the path without `.bin`, or all
 * of it. Unknown if there is no such file, or no hash in it. -RP_E_FORMAT: it cannot be read. */
RP_MUST_CHECK int rp_ids_read_tokenizer(struct rp_tokenizer_id *id, const char *token_path,
                                        struct rp_error *error);

/* The tokenizer of the shards of a corpus so far. */
struct rp_tokenizer_known {
    struct rp_tokenizer_id id;
    const char *source; /* the first one's that names a tokenizer; borrowed */
};
/** Take the tokenizer of the next shard that has one. -RP_E_MISMATCH: it is not the one so far; the
 * message names both. */
RP_MUST_CHECK int rp_ids_take_tokenizer(struct rp_tokenizer_known *known,
                                        const struct rp_tokenizer_id *id, const char *source,
                                        const char *path, struct rp_error *error);

#endif
