/* SPDX-License-Identifier: Apache-2.0 */
/* audit.h — `ringpack audit A B`: whether two positions have the same rows before them.
 *
 * A side is a state token, a checkpoint, or a config at a row. The verdict follows from plan
 * digests (STREAM.md section 7) and from planning again; no file of a run is changed. */
#ifndef RP_TOOLS_AUDIT_H
#define RP_TOOLS_AUDIT_H

#include "base/record.h"
#include "config/config.h"
#include "explain/walk.h"

struct rp_audit_side {
    const char *path; /* as it was typed */
    char *token;      /* NULL: the side is a config */
    size_t token_bytes;
    uint64_t row;             /* the position */
    struct rp_hash128 digest; /* its plan's; zero if not known */
    struct rp_record_writer stream;
    struct rp_config config;
    bool has_config;   /* so that its rows can be planned */
    char *config_path; /* the place of the read */
    struct rp_walk walk;
    bool is_open; /* the walk */
};

enum rp_audit_verdict {
    RP_AUDIT_IDENTICAL, /* the same rows, up to one row */
    RP_AUDIT_CONTINUES, /* the later position continues the earlier one */
    RP_AUDIT_DIFFERS,   /* the first row that differs is known */
    RP_AUDIT_DEVIATES,  /* other rows; a side deviates from the plan of its config from row 0 */
    RP_AUDIT_OTHER,     /* different streams: fields of the contract differ */
};

struct rp_audit {
    struct rp_audit_side sides[2];
    enum rp_audit_verdict verdict;
    bool is_unproven;     /* rp_audit_compare failed because the sides do not suffice */
    uint64_t rows;        /* that are identical; of RP_AUDIT_DEVIATES the earlier position */
    bool deviates[2];     /* RP_AUDIT_DEVIATES */
    bool has_fragment[2]; /* RP_AUDIT_DIFFERS: the first fragment of row `rows` that differs */
    struct rp_fragment fragment[2];
};

/** Whether a side is a config, without a position of its own. */
bool rp_audit_is_config(const char *path);
/** Read a side. `config` is the path of -c, or NULL. `other` is the other side: of a config, it is
 * open if it has a position. */
RP_MUST_CHECK int rp_audit_side_open(struct rp_audit_side *side, const char *path,
                                     const char *config, const struct rp_audit_side *other,
                                     struct rp_error *error);
/** Give a side without a config the config of the other side, if that has one. */
RP_MUST_CHECK int rp_audit_side_borrow(struct rp_audit_side *side,
                                       const struct rp_audit_side *other, struct rp_error *error);
void rp_audit_side_close(struct rp_audit_side *side);

/** Open the corpus and the plan of a side that has a config. Once done, this returns 0 at once. */
RP_MUST_CHECK int rp_audit_side_plan(struct rp_audit_side *side, struct rp_error *error);

/** Give a config its position: its plan at `row`. */
RP_MUST_CHECK int rp_audit_side_place(struct rp_audit_side *side, uint64_t row,
                                      struct rp_error *error);

/** Compare. Errors: the sides do not suffice, with a proposal. */
RP_MUST_CHECK int rp_audit_compare(struct rp_audit *audit, struct rp_error *error);

/** The next differing field of the streams' contracts. Weights, limits and records after the first
 * of both positions are left out, because they may change at a row. Start with {.of = …} of both
 * sides. */
bool rp_audit_next_field(const struct rp_audit *audit, struct rp_record_pair *pair);
struct rp_record rp_audit_stream(const struct rp_audit_side *side);

#endif
