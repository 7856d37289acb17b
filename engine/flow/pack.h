/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h — stage 2: bytes become rows. Packer w of P takes the tickets that are w modulo P, as a
 * thread or a process. */
#ifndef RP_FLOW_PACK_H
#define RP_FLOW_PACK_H

#include <pthread.h>
#include <sys/types.h>

#include "flow/files.h"
#include "flow/flow.h"
#include "flow/verified.h"

/* A batch ring as a packer sees it: where the slots are, and their immutable shape. Never the
 * ring's moving words. */
struct rp_pack_target {
    uint8_t *slots;
    struct rp_geometry geometry;
    uint32_t ids_dtype, labels_dtype, positions_dtype;
};

struct rp_deliver;

/* What all packers of a flow share; read-only while they run, but for what deliver guards. */
struct rp_pack_plan {
    const struct rp_arena *arena;
    struct rp_deliver *deliver;           /* NULL: packers are processes, and wake the engine */
    const struct rp_pack_target *targets; /* [ring] */
    const struct rp_files *files;         /* for tokens in mapped files */
    struct rp_verified *verified;         /* [packers]; NULL where nothing is mapped */
    uint32_t packers;
    uint64_t token_limit;
    int64_t pad_id;
    int wake_fd; /* eventfd of deliver */
};

struct rp_packer {
    const struct rp_pack_plan *plan;
    uint32_t index;
    bool is_process;
    pthread_t thread;
    bool started;
    pid_t pid;
    int pidfd; /* -1 when there is none */
};

void rp_pack_target_init(struct rp_pack_target *target, const struct rp_ring *ring);

RP_MUST_CHECK int rp_packer_start(struct rp_packer *packer, bool as_process,
                                  struct rp_error *error);
/** Whether it was a process and has died: asked of the kernel. */
bool rp_packer_is_dead(const struct rp_packer *packer);
/** Of a dead one: 0 if it was killed from outside, so that another can do its ticket again;
 * negative if it ended by itself, as the next one would. */
RP_MUST_CHECK int rp_packer_judge_death(const struct rp_packer *packer, struct rp_error *error);
/** After stop was set and the events were signalled. A process is killed: it may be stopped. */
void rp_packer_join(struct rp_packer *packer);

/** The loop itself: returns when the flow stops. Allocates nothing and takes no lock: a forked
 * child may run it. */
void rp_packer_run(const struct rp_pack_plan *plan, uint32_t index);

#endif
