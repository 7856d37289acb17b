/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h — what the engine asks of a machine, one check for each thing. */
#ifndef RP_TOOLS_DOCTOR_H
#define RP_TOOLS_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "stream.h"

enum rp_doctor_state {
    RP_DOCTOR_OK,
    RP_DOCTOR_WARN, /* it works, but not as well as it could */
    RP_DOCTOR_FAIL, /* an engine cannot run */
};

/* What a run would take: from the config, or its defaults. */
struct rp_doctor_needs {
    uint64_t prefetch_bytes, ring_bytes; /* ring_bytes 0: not known without a config */
    uint64_t files, files_least;         /* descriptors: to keep all token files open, or a few */
    uint32_t readers, packers;
    const char *run_dir; /* may be NULL */
    /* Of a config's corpus: why it cannot be opened (0: it can), and what the limit of documents a
     * row costs, when that is worth a word. */
    int corpus_code;
    struct rp_error corpus_error;
    char packing[512];
    bool has_corpus;
    struct rp_unverified_share unverified_share;
    char unverified[256]; /* the sources that it comes from */
};

struct rp_doctor_finding {
    enum rp_doctor_state state;
    char found[512];
    char fix[384]; /* empty when there is nothing to do */
};

struct rp_doctor_check {
    const char *name;
    void (*look)(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding);
};
extern const struct rp_doctor_check rp_doctor_checks[];
extern const size_t rp_doctor_check_count;

#endif
