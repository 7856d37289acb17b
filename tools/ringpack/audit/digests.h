/* SPDX-License-Identifier: Apache-2.0 */
/* digests.h — `ringpack audit A B` with files of digests, which trainers write while they train
 * (engine/client/digest_log.c): what was delivered, compared by content.
 *
 * The files of all ranks of a run lie in one folder. Their content digests add up where every rank
 * has an entry, so runs with different numbers of ranks are compared at the rows at which intervals
 * of both end. Of rows that were given twice, after a rollback, the later ones count. */
#ifndef RP_TOOLS_AUDIT_DIGESTS_H
#define RP_TOOLS_AUDIT_DIGESTS_H

#include "audit/audit.h"

/* What all ranks together were given of rows [first_row, row). */
struct rp_audit_interval {
    uint64_t first_row, row, rows, tokens;
    struct rp_hash128 content;
    struct rp_hash128 plan; /* of all rows before `row`; zero if not known */
    char time[32];          /* of the last entry; texts of one length, which sort by time */
};

struct rp_audit_digests {
    const char *path;
    struct rp_audit_interval *intervals; /* ascending, none overlaps another */
    size_t count, files;
    size_t twice;           /* intervals that were given twice, with other tokens */
    uint64_t twice_row;     /* the first row of the first of them */
    size_t damaged;         /* files whose chain is not whole */
    char damaged_name[256]; /* of the first of them */
};

/** Whether a path is a file of digests, or a folder with some. */
bool rp_audit_is_digests(const char *path);
RP_MUST_CHECK int rp_audit_digests_open(struct rp_audit_digests *digests, const char *path,
                                        struct rp_error *error);
void rp_audit_digests_close(struct rp_audit_digests *digests);

/** Compare two sides, of which at least one is digests, and print the result. `config`: of -c, or
 * NULL. Returns the exit status. */
int rp_audit_compare_digests(const char *const paths[2], const char *config, bool json);

#endif
