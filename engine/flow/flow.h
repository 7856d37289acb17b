/* SPDX-License-Identifier: Apache-2.0 */
/* flow.h — the pipeline: plan → fetch ══ prefetch ring ══► pack ══ batch rings ══► trainers.
 *
 * The only module that joins plan, corpus, io and shm. Its stages (files of the same names):
 *
 *     dispatch  one thread: plans rows, turns rows of local ranks into tickets
 *     fetch     reader threads: tickets → reads → READY
 *     pack      threads or processes: READY tickets → final addresses in batch slots
 *     deliver   PACKED tickets in order → published batches; releases → free slots: the caller's
 *               thread, in steps, and packer threads while it sleeps
 *
 * A flow runs from one micro-batch on until it is stopped, and can be started again elsewhere: that
 * is how the engine moves to another row. The bytes of a batch do not depend on a flow's threads,
 * sizes or timing. */
#ifndef RP_FLOW_FLOW_H
#define RP_FLOW_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/fail.h"
#include "base/numbering.h"
#include "corpus/corpus.h"
#include "flow/costs.h"
#include "flow/ticket.h"
#include "io/io.h"
#include "plan/plan.h"
#include "shm/ring.h"

#define RP_PACKERS_MAX 64u
#define RP_READERS_MAX 64u
#define RP_PREFETCH_BYTES_STANDARD (64ull << 20) /* where no blocks are read */

struct rp_contents;   /* contents.h */
struct rp_next_use;   /* next_use.h */
struct rp_page_cache; /* page_cache.h */
struct rp_sums;       /* sums.h */

/* Counts of a source with a mask, over the rows that are planned for this node's ranks: so they are
 * ahead of delivery. A document counts in the row where it begins. Several flows may add to the
 * counts. */
struct rp_mask_counts {
    struct rp_a64 labels; /* tokens that have a label */
    struct rp_a64 documents;
    struct rp_a64 untrained; /* documents without a trained token */
    /* documents whose trained tokens are all after the first seq_len tokens, which long_doc:
     * truncate keeps */
    struct rp_a64 cut_off;
};

/* The options that hold for all starts of a flow. */
struct rp_flow_options {
    const struct rp_corpus *corpus;
    const struct rp_io_method *method;
    const struct rp_io_method *file_method; /* if `method` reads objects: the method for files */
    bool may_fall_back;                     /* as in rp_io_options */
    const struct rp_contents *contents;     /* NULL = none */
    struct rp_cache *cache;       /* the cache of objects, indexed by shard number; NULL = none */
    struct rp_next_use *next_use; /* gets a note of each read; NULL = no forecast */
    uint32_t readers, packers, io_depth;
    bool packer_processes;
    bool mapped;   /* take tokens from mapped files: for a corpus that the page cache holds */
    bool o_direct; /* open token files with O_DIRECT where they allow it */
    /* Choose the read mode continuously for each stretch (residency.h). `mapped` and `o_direct`
     * then hold at the start only. If the flow cannot adapt, they hold for the whole run, but no
     * file is mapped without may_buffer. */
    bool adapts;
    bool may_buffer, may_direct;            /* the reads that an adapting flow may choose */
    const struct rp_page_cache *page_cache; /* NULL: the kernel's */
    bool
        verify_blocks; /* compare bytes read with the sidecar's hashes; without hashes, no effect */
    uint64_t token_limit; /* token ids must be below it */
    int64_t pad_id;
    uint32_t dp_world_size, rank_first, rank_count;
    uint32_t batch_size;   /* the largest of all stages: rows of a micro-batch of a rank */
    uint64_t step_batches; /* the most micro-batches that a step has */
    bool drop_last;
    uint64_t prefetch_bytes; /* size of the data ring, by rp_flow_prefetch_bytes */
    uint32_t seq_len;
    uint64_t state_bytes;       /* most a state token can need */
    uint32_t batch_slots;       /* slots of each batch ring */
    uint32_t other_descriptors; /* that the engine needs besides token files */
    uint32_t descriptors_max;   /* open token files at once; 0: as many as the limit leaves */
    struct rp_mask_counts *mask_counts; /* [sources], borrowed; NULL: not counted */
    struct rp_sums *steps;              /* borrowed; NULL: sums of steps are not kept */
    uint64_t step_bytes;        /* most memory of the queue of a step's rows; 0: 64 MiB (queue.h) */
    const struct rp_cost *cost; /* cost model of rows, borrowed; NULL: the costs of their deals */
    bool truncates;             /* documents are cut to seq_len tokens */
    struct rp_row_form form;    /* the form of the plan's rows */
};

/** options->prefetch_bytes if it is set. If it is 0: the size with which the windows of a plan that
 * is positioned at base_row keep a disk busy (block_reads.h), at least 64 MiB and at most 1 GiB. Of
 * the other options only the corpus and the fields that select this node's rows are used. */
uint64_t rp_flow_prefetch_bytes(const struct rp_flow_options *options, const struct rp_plan *plan,
                                uint64_t base_row);

/** Memory that a flow of these options takes, shared if packers are processes; is_mapped: with
 * tokens from mapped files. Reads corpus, packers, verify_blocks, seq_len, prefetch_bytes, world,
 * rank_count, rows, step_batches, batch_slots and state_bytes only. */
uint64_t rp_flow_memory_bytes(const struct rp_flow_options *options, bool is_mapped);

/* Figures from the watcher of an adapting flow (residency.h). */
struct rp_flow_page_cache {
    bool is_watched; /* false: the flow does not adapt, and the rest is 0 */
    uint64_t corpus_bytes, held_bytes, room_bytes;
};

struct rp_flow;

/** Make the prefetch ring; no thread runs yet. `options` is copied; its pointers are borrowed.
 * `wake_fd` is an eventfd that packers write when deliver is parked. */
RP_MUST_CHECK int rp_flow_open(struct rp_flow **flow_out, const struct rp_flow_options *options,
                               int wake_fd, struct rp_error *error);
void rp_flow_close(struct rp_flow *flow); /* stops it first; NULL is fine */

/* The beginning of a flow. `before` is copied; the rest is borrowed until the flow is stopped. */
struct rp_flow_begin {
    uint64_t batch;       /* the first micro-batch */
    struct rp_plan *plan; /* positioned at its first row */
    const struct rp_numbering *numbering;
    struct rp_ring *rings; /* [rank_count] ring r gets the micro-batches from its tail on */
    /* Needed if the micro-batch is inside a step whose sums are not kept: a state at or before the
     * step's first row, from which the step is counted. NULL, or without a token: such a step has
     * no sums. */
    const struct rp_row_state *before;
};
RP_MUST_CHECK int rp_flow_start(struct rp_flow *flow, const struct rp_flow_begin *begin,
                                struct rp_error *error);
/** Stop all stages and wait for reads in flight. Published batches stay published, and trainers
 * know of it. Idempotent. Not between a park and an unpark. */
void rp_flow_stop(struct rp_flow *flow);
/** Tell all stages to end, and wait for none: one hangs at a disk. They use the flow, its options,
 * plan and rings until the process ends, so nothing of these may be freed. */
void rp_flow_abandon(struct rp_flow *flow);

/** While packers are paused no thread or process writes to a ring that this flow serves, so the
 * caller may replace rings[r] by a ring of the same geometry and tail, into which it has copied the
 * batches of the old one below rp_flow_packed_end. Only between an unpark and a park. Planning and
 * reading continue, and prefetched data is kept: a ticket that a packer had begun is packed again.
 * If resuming fails, the flow has been stopped. */
void rp_flow_pause_packers(struct rp_flow *flow);
RP_MUST_CHECK int rp_flow_resume_packers(struct rp_flow *flow, struct rp_error *error);
/** The end of this ring's batches whose rows may have been packed. They may be above the tail. Only
 * while packers are paused. */
uint64_t rp_flow_packed_end(const struct rp_flow *flow, uint32_t ring);

bool rp_flow_packers_are_paused(const struct rp_flow *flow);

enum rp_flow_step {
    RP_FLOW_IDLE,   /* no work now: park */
    RP_FLOW_WORKED, /* call again */
    RP_FLOW_ENDED,  /* the stream has ended, as the rings say; no batch follows */
    /* A block of documents could not be read as a whole, though its store can be reached: stop, and
     * start at the lowest tail. From now on documents are read individually, so that damage stops
     * the stream at the damaged document, if that is used at all. */
    RP_FLOW_RESTART
};
/** One step of deliver: retire packed tickets, publish finished batches, read the trainers' release
 * words. Returns enum rp_flow_step, or the error that stopped the stream (everything before it has
 * been published). */
RP_MUST_CHECK int rp_flow_deliver(struct rp_flow *flow, struct rp_error *error);
/** Call before sleeping on wake_fd; false if there is work after all. From here to rp_flow_unpark,
 * which is to be called in both cases, packer threads deliver, and the caller must not touch the
 * flow or its rings. Unpark without a park before it has no effect. */
bool rp_flow_park(struct rp_flow *flow);
void rp_flow_unpark(struct rp_flow *flow);
/** Wake the sleeper when trainers have released `batch` micro-batches (UINT64_MAX: never). Holds
 * until the flow is restarted. */
void rp_flow_wake_at(struct rp_flow *flow, uint64_t batch);

/** Are tokens taken from mapped files? In a flow that adapts: most of them? */
bool rp_flow_is_mapped(const struct rp_flow *flow);

struct rp_flow_page_cache rp_flow_page_cache(const struct rp_flow *flow);

/** Packer processes: pidfds to watch (-1 = no process). A dead one is replaced by
 * rp_flow_replace_packer, which leaves a living one untouched. */
int rp_flow_packer_pidfd(const struct rp_flow *flow, uint32_t packer);
RP_MUST_CHECK int rp_flow_replace_packer(struct rp_flow *flow, uint32_t packer,
                                         struct rp_error *error);

/** While held, batches from `batch` on and tickets not yet retired stay where they are: a
 * checkpoint copies them. */
void rp_flow_hold(struct rp_flow *flow, uint64_t batch);
void rp_flow_release_hold(struct rp_flow *flow);

/** The state before micro-batch `position`, if it is kept and dispatch cannot write over it. Valid
 * until the caller delivers, parks, or changes a ring. Only between an unpark and a park. */
struct rp_row_state rp_flow_state_at(const struct rp_flow *flow, uint64_t position);
/** Forget all kept states, because micro-batches are going to be numbered from another base row.
 * Only while the flow is stopped. */
void rp_flow_forget_states(struct rp_flow *flow);
/** Forget the kept states of rows above `row`, because these rows are going to be planned again. */
void rp_flow_forget_states_after(struct rp_flow *flow, uint64_t row);
struct rp_arena *rp_flow_arena(struct rp_flow *flow);
/** Address of the tokens of a transfer of an unretired ticket, once they are loaded. */
const uint8_t *rp_flow_transfer_tokens(const struct rp_flow *flow,
                                       const struct rp_transfer *transfer);
/** The numbers [first, last) of all slots from deliver's next ticket on, as of now. If the ticket
 * of a number is not planned yet, the state word in its slot is an older ticket's. */
void rp_flow_tickets(const struct rp_flow *flow, uint64_t *first, uint64_t *last);

/** Request a revalidation of every token file without hashes that was used since the last one;
 * wake_fd is written when the result is ready. rp_flow_stop revalidates them as well, so a stopped
 * flow needs no request. */
void rp_flow_request_revalidation(struct rp_flow *flow);
/** 1: no file has changed: every token that was copied before the request matches the file as it
 * was opened. 0: no result yet; a disk that hangs gives none. Negative: *error names a file that
 * has changed. */
RP_MUST_CHECK int rp_flow_revalidation_result(const struct rp_flow *flow, struct rp_error *error);

struct rp_flow_counts {
    uint64_t batches, rows, tokens; /* published, over local ranks; tokens without padding */
    uint64_t reads, read_bytes, short_reads, read_retries;
    /* Bytes of tokens taken from files, read or mapped, and how many of them no hash verifies. */
    uint64_t taken_bytes, unverified_bytes;
    uint64_t buffered_bytes, direct_bytes; /* shares of taken_bytes; the rest was mapped */
    uint64_t packers_replaced;
};
void rp_flow_counts(const struct rp_flow *flow, struct rp_flow_counts *counts);
/** Add the counts and costs of the stopped flow to a new one, of as many ranks, that replaces it.
 */
void rp_flow_continue_counts(struct rp_flow *flow, struct rp_flow *stopped);

/** The cost of all batches that were published to a local rank since the flow was opened; negative:
 * a batch has none. */
double rp_flow_rank_cost(const struct rp_flow *flow, uint32_t ring);

/** Waiting of local ranks for each other. */
struct rp_flow_imbalance rp_flow_imbalance(const struct rp_flow *flow);

/* The running readers, also of catch-up flows. */
struct rp_flow_readers {
    uint32_t count;
    uint32_t refused;           /* number of readers that use pread because io_uring was refused */
    const struct rp_error *why; /* reason of one refusal, or NULL. Valid until a stop */
};
struct rp_flow_readers rp_flow_readers(const struct rp_flow *flow);

/* The oldest undelivered ticket, for which each ring without a batch waits, and what it waits for.
 * Its stage moves down this list, but for a return from HELD and FULL. */
enum rp_oldest_stage {
    RP_OLDEST_NONE, /* the flow is stopped, or has delivered all */
    RP_OLDEST_UNPLANNED,
    RP_OLDEST_UNPLANNED_HELD, /* a save keeps the room that planning needs */
    RP_OLDEST_AT_FILE,        /* planned, and to be read from files */
    RP_OLDEST_AT_SERVER,      /* the same, from a server: it waits for one, or will */
    RP_OLDEST_READ,
    RP_OLDEST_READ_HELD, /* a save keeps the slot that it needs */
    RP_OLDEST_READ_FULL, /* its consumers keep that slot */
    RP_OLDEST_PACKED,
    RP_OLDEST_STAGES
};
struct rp_oldest_ticket {
    enum rp_oldest_stage stage;
    uint32_t full_ring; /* READ_FULL: the first of its rings without room for it */
};
/** The oldest ticket of the flow that serves the ring, which may be a catch-up flow. Called by the
 * engine's thread, after it has polled the rings. */
struct rp_oldest_ticket rp_flow_oldest_ticket(const struct rp_flow *flow, uint32_t ring);

#endif
