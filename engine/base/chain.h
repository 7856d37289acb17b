/* SPDX-License-Identifier: Apache-2.0 */
/* chain.h — a file of lines that only grows, in which each line has the hash of the line before it.
 *
 * An entry is one line, a JSON object whose first and last members belong to the chain:
 *
 *     {"entry":2,"after":HASH,"time":"2026-01-31T08:15:00.000Z",…,"hash":HASH}
 *
 *   entry   counts from 1
 *   after   the `hash` of the entry before it; 64 zeros in the first one
 *   hash    SHA-256 of the bytes of this line before `,"hash"`, as 64 hexadecimal digits
 *
 * A kill or a power cut may leave the beginning of a line, or any bytes, after the last entry.
 * The next append leaves them there, ends their line, and says so in its entry:
 *
 *     "skipped":BYTES,"skipped_hash":HASH     the bytes between the entry before it and this line
 *
 * Invariants:
 *
 *   - No byte that was written is changed; only a failed append removes its own bytes.
 *   - `hash` covers `after`, so the hash of an entry stands for the whole file before it: a byte
 *     that was changed, and an entry that was removed or inserted, break the chain at that place.
 *   - The end of the file is not covered: a file that lacks its last entries is whole. Anyone who
 *     keeps the hash of an entry elsewhere notices. */
#ifndef RP_BASE_CHAIN_H
#define RP_BASE_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_CHAIN_LINE_MAX 8192u /* bytes of an entry */
#define RP_CHAIN_HASH_BYTES 65u /* 64 hexadecimal digits and a NUL */

/** Append an entry to the file, which is made if it is not there. `members`: members of a JSON
 * object, without braces, in printable ASCII. is_durable: it is on the disk when the call returns.
 * Several processes may append at the same time. A file that is no chain is refused. On failure the
 * file is as it was, or ends with a part of a line, or has the entry, which may not be durable. */
RP_MUST_CHECK int rp_chain_append(const char *path, const char *members, bool is_durable,
                                  struct rp_error *error);

/** Find out whether entries can be appended to the file, which is made if it is not there. It fails
 * where an append would. */
RP_MUST_CHECK int rp_chain_check(const char *path, struct rp_error *error);

/** The hash of the last entry of a file, which is read without a lock. An error also if it has no
 * entry. Writes no file. */
RP_MUST_CHECK int rp_chain_last(const char *path, char hash[RP_CHAIN_HASH_BYTES],
                                struct rp_error *error);

enum rp_chain_link {
    RP_CHAIN_LINKED,  /* it follows the entry before it */
    RP_CHAIN_SKIPPED, /* the same, with bytes between the two: it names their hash */
    RP_CHAIN_BROKEN   /* entries are missing before it, or were changed or inserted */
};

struct rp_chain_entry {
    const char *text; /* the line without its newline: borrowed, not NUL-terminated */
    size_t bytes, offset;
    uint64_t number;
    char hash[RP_CHAIN_HASH_BYTES];
    enum rp_chain_link link;
    size_t skipped; /* bytes between the entry before it and this one */
};

/* Start with {.text = …, .bytes = …}. */
struct rp_chain_reader {
    const char *text;
    size_t bytes, at;
    size_t end;                     /* end of the last entry, with its newline */
    uint64_t number;                /* the last entry's, 0 = none */
    char hash[RP_CHAIN_HASH_BYTES]; /* the last entry's */
};
/** The next entry; false at the end. Bytes from reader->end on are of no entry then. */
bool rp_chain_next(struct rp_chain_reader *reader, struct rp_chain_entry *entry);

#endif
