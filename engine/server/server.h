/* SPDX-License-Identifier: Apache-2.0 */
/* server.h — one engine process on a node: a corpus and a config in, batch rings out.
 *
 * rp_engine_run is the whole life of an engine: it opens the corpus, finds the start row, serves
 * trainers until a stop or the end of the stream, and leaves a checkpoint. Each run is a new
 * generation with fresh shared memory. */
#ifndef RP_SERVER_SERVER_H
#define RP_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"
#include "config/config.h"
#include "corpus/corpus.h"
#include "plan/plan.h"

struct json_t;
/* Callbacks into another part of the process. The engine's own thread calls them, so none may wait.
 */
struct rp_engine_observer {
    void *context;
    void (*ready)(void *context); /* trainers can attach */
    /* Add keys to the answer of a `ringpack stat`. */
    void (*add_stat)(void *context, struct json_t *stat);
    /* The engine closes. `stat` has the keys about its phase and its saves, as they are at the end.
     * Called once if `ready` was, unless the process is killed. */
    void (*ended)(void *context, const struct json_t *stat);
};

struct rp_engine_options {
    const struct rp_config *config; /* finished */
    const void *state;              /* state token to start from, or NULL */
    size_t state_bytes;
    const char *state_path; /* its file, for messages; NULL = not known */
    /* Stream record of a contract: rows are delivered again as a run had them, with all of its
     * records. NULL = none */
    const struct rp_record *records;
    bool fresh;          /* as resume: fresh in the config */
    bool accept_weights; /* take the config's weights from the start row on */
    bool keep_journal;   /* write the run journal into checkpoint_dir */
    /* The end of the stream does not end the engine. If the lifeline ends, the engine waits for
     * trainers that read the last batches. */
    bool stays;
    int ready_fd;    /* gets "ready\n" once trainers can attach; -1 = none */
    int lifeline_fd; /* the engine stops when it reads end of file; -1 = none */
    const struct rp_engine_observer *observer; /* NULL = none */
    bool *was_stopped; /* out: a signal or a request has ended it; NULL = not wanted */
};

/* The result of an engine whose next start begins a stage of another seq_len. */
#define RP_ENGINE_STAGE_ENDED 1

/** Serve until SIGTERM, SIGINT or SIGHUP (checkpoint, 0), the end of the stream (0) or of a stage
 * (RP_ENGINE_STAGE_ENDED), end of the lifeline (0), or an error (negative, after a checkpoint of
 * the consumed rows). A second signal exits at once. Blocks those signals; ignored ones stay
 * ignored. The config must last until the process ends: threads that hang at a disk use it. */
RP_MUST_CHECK int rp_engine_run(const struct rp_engine_options *options, struct rp_error *error);

/* Resident memory of an engine, in bytes, without the pages of mapped files and without the
 * checkpoint that it resumed from, whose contents stay on the heap. Its flow takes flow_reading, or
 * flow_mapped if all token files are mapped for the whole run (`io: mapped`), and not read. */
struct rp_engine_memory {
    uint64_t batch_rings, flow_reading, flow_mapped, process;
    uint64_t catch_up; /* on top, for each rank that catches up with the others; 0 with one rank */
};
/** The memory of an engine that begins at the plan's row. */
struct rp_engine_memory rp_engine_memory(const struct rp_config *config,
                                         const struct rp_corpus *corpus,
                                         const struct rp_plan *plan);

/** Descriptors of an engine without its token files: rings, sockets and processes of all seats, of
 * readers and packers, and some for checkpoints and for peers with requests. */
uint32_t rp_engine_descriptors(const struct rp_config *config);

#endif
