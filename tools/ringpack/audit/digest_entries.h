/* SPDX-License-Identifier: Apache-2.0 */
/* digest_entries.h — the entries of the files of digests of a folder, and which of them an attach
 * has superseded (digests.h). */
#ifndef RP_TOOLS_AUDIT_DIGEST_ENTRIES_H
#define RP_TOOLS_AUDIT_DIGEST_ENTRIES_H

#include "audit/digests.h"

/* An entry of one rank. */
struct rp_digest_entry {
    uint32_t rank, world;
    bool is_attach;     /* at of.first_row; otherwise a digest */
    bool is_superseded; /* or a copy of another entry */
    bool is_used;       /* in an interval of all ranks */
    size_t file;        /* number of its file */
    uint64_t id;        /* the begin of its hash */
    uint64_t *seen;     /* if an attach: ids of entries that it came after */
    size_t seen_count;
    struct rp_audit_interval of;
};

struct rp_digest_place {
    uint64_t id;
    size_t at; /* in the list */
};

struct rp_digest_entries {
    struct rp_digest_entry *list; /* file by file, in their order */
    size_t count, room;
    struct rp_digest_place *places; /* [count], by id and place */
};

/** Read all files of digests->path. Files that are not whole are counted. */
RP_MUST_CHECK int rp_digest_entries_read(struct rp_digest_entries *entries,
                                         struct rp_audit_digests *digests, struct rp_error *error);
/** Mark those that are superseded. */
RP_MUST_CHECK int rp_digest_entries_order(struct rp_digest_entries *entries,
                                          struct rp_error *error);
/** The first of the places that has the id, or the next higher one: [0, count]. */
size_t rp_digest_entries_find(const struct rp_digest_entries *entries, uint64_t id);
/** Whether an attach takes back deliveries of this entry's kind: all ranks of a job go back
 * together, but each rank says so for itself. So these are deliveries to the rank itself, and
 * deliveries to ranks of jobs of other numbers of ranks. */
bool rp_digest_takes_back(const struct rp_digest_entry *attach,
                          const struct rp_digest_entry *entry);
/** Add the doubts about deliveries that left only an attach, or not even that (digest_traces.c). */
RP_MUST_CHECK int rp_digest_entries_trace(const struct rp_digest_entries *entries,
                                          struct rp_audit_digests *digests, struct rp_error *error);
void rp_digest_entries_free(struct rp_digest_entries *entries);

#endif
