/* SPDX-License-Identifier: Apache-2.0 */
/* digests.h — `ringpack audit A B` with files of digests, which trainers write while they train
 * (engine/client/digest_log.c): rows that were delivered, compared by content.
 *
 * The files of all ranks of a run are in one folder. Their content digests add up where every rank
 * has an entry, so runs with different numbers of ranks are compared at rows where intervals of
 * both end.
 *
 * Invariants:
 *
 *   - An entry is superseded only by an attach at an earlier row that is known to come after it:
 *     later in the same chain, or with the hash of this entry or of a later one of its chain. Times
 *     and names of files give no order.
 *   - Each entry is added up, superseded, or named by a doubt. Rows with a doubt are not proven. */
#ifndef RP_TOOLS_AUDIT_DIGESTS_H
#define RP_TOOLS_AUDIT_DIGESTS_H

#include "audit/audit.h"

/* The deliveries of rows [first_row, row) to all ranks together. */
struct rp_audit_interval {
    uint64_t first_row, row, rows, tokens;
    struct rp_hash128 content;
    struct rp_hash128 plan;  /* all rows before `row`; zero if not known */
    struct rp_hash128 other; /* plan of another rank, which differs; else zero */
    bool lacks_plan;         /* the plan of one of the ranks is not known */
};

/* A reason why some rows are not proven. */
enum rp_audit_reason {
    RP_AUDIT_TWO_CONTENTS, /* given twice, with different tokens */
    RP_AUDIT_TWO_PLANS,    /* given as different documents to two ranks, or at two times */
    RP_AUDIT_NO_ORDER,     /* given twice, and the later delivery is not known */
    RP_AUDIT_LACKS_RANK,   /* not every rank has a digest */
    RP_AUDIT_LACKS_ROWS,   /* the ranks together were given fewer or more rows */
    RP_AUDIT_LACKS_PLAN,   /* the plan of a rank is not known */
    RP_AUDIT_LOST,         /* entries that were written are in no file */
    RP_AUDIT_DAMAGED,      /* a file is damaged: lost entries may be of any rows */
    RP_AUDIT_LEFT_OUT,     /* not compared: no digest, or no common bounds */
};

struct rp_audit_doubt {
    enum rp_audit_reason reason;
    uint64_t first_row, row;
};

struct rp_audit_doubts {
    struct rp_audit_doubt *list;
    size_t count, room;
};

struct rp_audit_digests {
    const char *path;
    struct rp_audit_interval *intervals; /* ascending, none overlaps another */
    size_t count, files;
    struct rp_audit_doubts doubts;
    uint64_t first_row, end_row; /* range of all entries that are not superseded */
    size_t twice;                /* deliveries that a later one contradicts */
    bool is_unproven;            /* opening failed: there is too little to compare */
    size_t damaged;              /* files whose chain is not whole */
    char damaged_name[256];      /* the first one's */
};

/** Whether a path is a file of digests, or a folder with some. */
bool rp_audit_is_digests(const char *path);
RP_MUST_CHECK int rp_audit_digests_open(struct rp_audit_digests *digests, const char *path,
                                        struct rp_error *error);
void rp_audit_digests_close(struct rp_audit_digests *digests);

/** Add the interval that follows `sum`. */
void rp_audit_extend(struct rp_audit_interval *sum, const struct rp_audit_interval *next);
/** Add a doubt, or extend the last one of the same reason. */
RP_MUST_CHECK int rp_audit_doubt_add(struct rp_audit_doubts *doubts, enum rp_audit_reason reason,
                                     uint64_t first_row, uint64_t row, struct rp_error *error);

/** Compare two sides, at least one of them digests, and print the result. `config`: of -c, or NULL.
 * Returns the exit status. */
int rp_audit_compare_digests(const char *const paths[2], const char *config, bool json);

#endif
