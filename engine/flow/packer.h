/* SPDX-License-Identifier: Apache-2.0 */
/* packer.h — the thread or process that packs, and the handling of its death. */
#ifndef RP_FLOW_PACKER_H
#define RP_FLOW_PACKER_H

#include <pthread.h>
#include <sys/types.h>

#include "flow/pack.h"

struct rp_packer {
    const struct rp_pack_plan *plan;
    uint32_t index;
    bool started;
    pthread_t thread;
    pid_t pid;
    int pidfd;                /* -1: it is a thread */
    uint64_t ticket_at_death; /* the ticket that its last process was packing when it died */
    uint32_t deaths;          /* number of its processes that died at that ticket */
};

RP_MUST_CHECK int rp_packer_start(struct rp_packer *packer, bool as_process,
                                  struct rp_error *error);
/** Has its process died? The kernel knows. */
bool rp_packer_is_dead(const struct rp_packer *packer);
/** Judge the death of its process, once: 0 if it was killed from outside, so that another process
 * can do its ticket again; negative if it crashed, as the next one would, or if 11 have died at one
 * ticket. */
RP_MUST_CHECK int rp_packer_judge_death(struct rp_packer *packer, struct rp_error *error);
/** End the packer, after stop was set and the events were signalled. A process is killed, because
 * it may be stopped (SIGSTOP). */
void rp_packer_join(struct rp_packer *packer);

#endif
