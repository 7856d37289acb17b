/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h — checks of the machine for the engine's needs. */
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

/* The needs of a run, by its config or by the defaults. */
struct rp_doctor_needs {
    uint64_t prefetch_bytes;
    uint64_t memory_bytes; /* an engine's, at its longest rows; 0: not known without a corpus */
    uint64_t files, files_least; /* descriptors: to keep all token files open, or a few */
    uint32_t readers, packers;
    const char *run_dir;                                /* may be NULL */
    const char *checkpoint_dir, *checkpoint_mirror_dir; /* NULL: none */
    enum rp_resume resume;
    /* The corpus of a config: the code of opening it, and a warning if max_docs_per_row costs much.
     */
    int corpus_code;
    struct rp_error corpus_error;
    char packing[512];
    char eos[512]; /* the sources whose EOS is doubtful (corpus/eos.h); "" = none */
    bool has_corpus;
    struct rp_unverified_share unverified_share;
    char unverified[256]; /* the sources that it comes from */
    /* The largest known token id (0: none is known), its source, and the limit of ids. */
    uint64_t token_max, token_limit;
    char token_source[128];
};

struct rp_doctor_finding {
    enum rp_doctor_state state;
    char found[640];
    char fix[384]; /* empty if no change is needed */
};

struct rp_doctor_check {
    const char *name;
    void (*run)(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding);
};
extern const struct rp_doctor_check rp_doctor_checks[];
extern const size_t rp_doctor_check_count;

#endif
