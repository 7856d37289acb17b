/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h — the engine process in parts: its life, its loop, the stream, the delivery, its peers,
 * saving and watching. Each part is written only by the files that tests/tidy/tidy.py lists for it.
 * A function takes the part that it needs; it takes the engine if it needs several parts.
 *
 * Threads: everything here belongs to the engine's own thread, except
 *
 *   - the shared fields of `struct rp_saver`, which it names;
 *   - stream.plan and catch_up_plans, which belong to dispatch while their flow runs;
 *   - planner.plan and planner.work, which belong to the planner's thread while it is busy;
 *   - rings, which belong to the thread that has the turn to deliver (flow/deliver.h);
 *   - mask_counts, steps, next_use and the cache, which have locks or atomic words of their own. */
#ifndef RP_SERVER_ENGINE_H
#define RP_SERVER_ENGINE_H

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

#include "base/contract.h"
#include "checkpoint/checkpoint.h"
#include "flow/catch_up.h"
#include "flow/contents.h"
#include "flow/flow.h"
#include "flow/next_use.h"
#include "flow/sums.h"
#include "plan/plan.h"
#include "server/far_plan.h"
#include "server/life.h"
#include "server/rate_samples.h"
#include "server/seat.h"
#include "server/server.h"
#include "server/cause.h"
#include "shm/ring.h"
#include "shm/socket.h"
#include "shm/wait.h"
#include "stream_gain.h"

struct rp_engine_journal;
struct rp_deferred_attach;
struct rp_recorder;

/* The event that lets the engine answer a request. */
enum rp_awaited {
    RP_AWAITS_NOTHING,
    RP_AWAITS_ROW,       /* an attach: its row is planned to */
    RP_AWAITS_NEXT_SAVE, /* no save has begun since the request */
    RP_AWAITS_SAVE,      /* the save under way */
    RP_AWAITS_END        /* the engine's */
};

/* A peer on the socket. Each connection is in one of these conditions:
 *
 *              seat   awaits    deferred   a message of the peer
 *   new        NULL   NOTHING   NULL       is its request
 *   pending    NULL   ROW       set        closes the connection
 *              NULL   another   NULL       closes the connection
 *   consumer   set    NOTHING   NULL       is a doorbell */
struct rp_connection {
    int fd;               /* -1 = free */
    struct rp_seat *seat; /* a trainer's; else NULL */
    uint64_t first_batch; /* a trainer's first batch after the attach */
    int32_t pid;          /* the peer's own word; only for listings */
    enum rp_awaited awaits;
    struct rp_deferred_attach *deferred; /* the attach */
};
#define RP_OTHER_PEERS_MAX 1024u /* connections in addition to one for each seat */

/* The states of a save, in this order. A thread of the save reaches a state first; the engine's
 * thread follows, and does its own part of the state (rp_engine_continue_save). */
enum rp_saver_state {
    RP_SAVER_IDLE,    /* there is no thread */
    RP_SAVER_COPYING, /* the flow holds the contents that are copied */
    RP_SAVER_COPIED,  /* the hold has ended; the disk is written */
    RP_SAVER_SAVED,   /* the result is known and reported; old checkpoints are removed */
    RP_SAVER_DONE     /* the thread ends: IDLE follows at once */
};

/* The result of the newest check of token files without hashes (revalidate.h). */
enum rp_validity {
    RP_VALIDITY_NONE,      /* no check was requested */
    RP_VALIDITY_REQUESTED, /* no result yet */
    RP_VALIDITY_UNCHANGED,
    RP_VALIDITY_CHANGED,
    RP_VALIDITY_LATE /* the disk did not answer in time */
};

/* Takes one checkpoint at a time on threads of its own: copy under a hold, and write. */
struct rp_saver {
    int done_fd;           /* eventfd: written at each state that is reached */
    struct rp_a32 reached; /* enum rp_saver_state. Writer: a thread of the save, release; reader:
                              the engine, acquire. PAIRS saver-state */
    /* engine's thread only */
    pthread_t thread;
    bool has_thread;           /* otherwise the save is done on the engine's thread */
    enum rp_saver_state state; /* never ahead of `reached` */
    uint64_t began_ns;
    struct rp_far_row far; /* the cut of the save that is due, if the cut is far */
    void *newest_token;    /* the state token of the newest checkpoint; NULL: not known */
    size_t newest_bytes;
    uint32_t bad_saves;        /* consecutive saves that the disk did not return as written */
    int bad_code;              /* the newest save is one of them; 0: it is not */
    struct rp_error bad_error; /* explains bad_code */
    /* in: set by the engine before the thread starts */
    struct rp_checkpoint_dir *directory;
    struct rp_checkpoint_info info;
    void *token; /* the state token of the cut */
    size_t token_bytes;
    char *config_text;
    const struct rp_contract *contract;
    bool lower_priority; /* the thread has it to read the file back, then clears the word */
    uint8_t *pages;      /* for the copy; kept from one save to the next, because the faults of new
                            memory take longer than the copy */
    size_t page_bytes;
    struct rp_content_source *sources; /* addresses of the contents in shared memory */
    size_t source_count;
    /* shared, enum rp_validity: contents count only if the check after their listing finds no
     * change. Writer: the engine; reader: a thread of the save. PAIRS saver-validity */
    struct rp_a32 validity;
    struct rp_event validity_settled;
    /* out: read by the engine once SAVED is reached */
    int code;
    char *path;
    uint64_t bytes;     /* size of the file that was written */
    bool already_saved; /* the newest checkpoint has this very state: no file was written */
    enum rp_validity drop_reason; /* CHANGED or LATE: contents are dropped */
    struct rp_error error;
    /* out: read by the engine once DONE is reached */
    uint64_t copied_ns; /* CLOCK_MONOTONIC: the contents were copied; 0: no contents */
    struct rp_checkpoint_times times;
    int read_back; /* 0, or why the disk did not return the bytes that were written */
    struct rp_error read_back_error;
};

/* `count` tokens of `width` bytes at token `offset` of `row`, in a batch slot or a ticket. */
struct rp_content_source {
    uint64_t row;
    uint32_t offset, count, width;
    uint32_t kept; /* bytes a token in the checkpoint: 2 or 4 */
    const uint8_t *tokens;
};

/* The source of an epoll event; `index` is the number of the connection or packer. */
enum rp_watch {
    RP_WATCH_WAKE,
    RP_WATCH_SIGNAL,
    RP_WATCH_LISTENER,
    RP_WATCH_SAVER,
    RP_WATCH_LIFELINE,
    RP_WATCH_PLANNER,
    RP_WATCH_CONNECTION,
    RP_WATCH_PACKER
};

/* The results of the saves since the engine started. */
struct rp_save_counts {
    uint64_t saves, failures;
    uint64_t row, ended_ns;      /* the last success; ended_ns 0: none */
    uint64_t good_row, good_ns;  /* the same, of the last one that was also read back */
    uint64_t bytes, duration_ns; /* the last that wrote a checkpoint */
    bool has_parts;              /* copy_ns and parts are known: of the last that was read back */
    uint64_t copy_ns;
    struct rp_checkpoint_times parts;
    bool has_failed; /* the last one has, for this reason: */
    char reason[sizeof(((struct rp_error *)0)->message)];
};

/* The refusal that was logged last. A refused trainer tries again several times a second. */
struct rp_logged_refusal {
    int32_t pid;
    uint64_t reason_hash, logged_ns;
};

/* The rows: documents, plans, and the states from which the engine can plan. */
struct rp_stream {
    const struct rp_config *config;
    struct rp_corpus *corpus;
    struct rp_plan *plan; /* belongs to the flow while it runs */
    /* for catch-up flows; kept for the next ring that falls behind; NULL: not opened yet */
    struct rp_plan *catch_up_plans[RP_CATCH_UP_PLANS_MAX];
    struct rp_plan *probe;         /* the engine's thread's own (probe.h) */
    struct rp_far_planner planner; /* plans to far rows on a thread */
    struct rp_gain_log gain_log;
    /* An argument of the probe: the far row of the attach or save that is served at present. NULL:
     * a far row is refused. */
    struct rp_far_row *far;
    struct rp_mask_counts *mask_counts; /* [sources] */
    struct rp_contract contract;        /* a view of contract_text */
    char *contract_text;
    char corpus_files[RP_HASH_HEX_BYTES]; /* trainers may expect it: config/description.h */
    struct rp_hash128 identity;           /* the stream's: the hash of its record */
    void *zero_state, *start_state;       /* tokens of row 0 and of the row this run began at */
    size_t zero_bytes, start_bytes;
    uint64_t start_row;
    bool accepts_weights; /* weights other than the state token's */
    bool is_reweighted;   /* the weights were changed at some row before start_row */
    /* The state at which the newest flow, or catch-up flow, began: the other known states may be
     * far from there. NULL: there is no such state of this stream. */
    void *kept_state;
    size_t kept_bytes;
    uint64_t kept_row;
    uint64_t state_bytes_max;
    struct rp_contents *contents;
    struct rp_checkpoint *resumed; /* has the bytes of the contents; NULL: no contents */
};

enum rp_delivery_state {
    RP_DELIVERY_STOPPED, /* no thread of it runs, and its plans are free */
    RP_DELIVERY_RUNNING,
    RP_DELIVERY_ENDED /* as RUNNING; all batches of the stream are published */
};

/* The batches: rings, seats, their numbering, and the flow that fills the rings. */
struct rp_delivery {
    const struct rp_config *config;
    uint64_t generation;
    struct rp_numbering numbering; /* changes only while the flow is stopped */
    struct rp_numbering trial;     /* has the same stages; rejoin_decide.c tries step rows in it */
    struct rp_geometry geometry;
    uint32_t ring_count;
    struct rp_ring *rings;
    uint32_t seat_count;
    struct rp_seat *seats; /* [ring * consumers_per_rank + replica] */
    bool had_consumer;     /* a consumer has attached since the engine started */
    bool has_consumed;     /* a consumer that has left had released a batch */
    /* Consumers that attach from one state token, each seat once, are one rollback. Epochs count
     * rollbacks, from 1; rollback_row is the row of the present one. */
    uint64_t rollback_epoch, rollback_row;
    struct rp_flow *flow;
    struct rp_sums *steps; /* sums of steps, for all flows */
    enum rp_delivery_state state;
    struct rp_io_chosen io;
    bool o_direct;               /* files are read with O_DIRECT at the start */
    struct rp_cache *cache;      /* holds objects of stores; NULL = none */
    struct rp_next_use next_use; /* distances for the cache */
    struct rp_prefill *prefill;  /* fills the cache; NULL = none */
    uint64_t tail_sum; /* the sum of all tails, and since when a consumer has waited at it */
    uint64_t tail_sum_ns;
    bool skipping_absent; /* a seat was skipped since the last attach */
    bool is_to_rewind;    /* the next consumer of this repeated stream begins a pass */
};

static inline bool rp_delivery_runs(const struct rp_delivery *delivery)
{
    return delivery->state != RP_DELIVERY_STOPPED;
}

static inline uint64_t rp_delivery_row(const struct rp_delivery *delivery, uint64_t batch)
{
    return rp_numbering_row(&delivery->numbering, batch);
}

/** The first row of the step of a batch. */
static inline uint64_t rp_delivery_step_row(const struct rp_delivery *delivery, uint64_t batch)
{
    return rp_delivery_row(delivery, batch - rp_numbering_micro_batch(&delivery->numbering, batch));
}

/* The processes on the socket. */
struct rp_peers {
    struct rp_listener listener;
    bool accept_is_due;                /* a peer waits to be accepted until a descriptor is free */
    bool turns_away;                   /* the newest peer was closed, and that was logged */
    struct rp_connection *connections; /* [connection_count] */
    uint32_t connection_count;
    uint32_t deferred_count; /* connections that wait for a far row */
    struct rp_logged_refusal refusal;
};

/** The first open connection from number *next on; *next becomes the number after it. NULL: none.
 */
static inline struct rp_connection *rp_peers_next(const struct rp_peers *peers, uint32_t *next)
{
    while (*next < peers->connection_count) {
        struct rp_connection *connection = &peers->connections[(*next)++];
        if (connection->fd >= 0)
            return connection;
    }
    return NULL;
}

/* Checkpoints, and the records of the run. */
struct rp_saving {
    const struct rp_config *config;
    struct rp_checkpoint_dir *checkpoints;
    char *checkpoint_path;        /* their directory, absolute; NULL: none, or it is not known */
    struct rp_recorder *recorder; /* NULL: no run record is kept */
    struct rp_engine_journal *journal; /* NULL: no run journal is kept */
    char *started_from;      /* the path of the checkpoint that the run began at; NULL: none */
    uint64_t saved_row;      /* the row of the newest checkpoint at the start, for the run record */
    bool started_reweighted; /* with other weights than the start state's */
    int set_aside;           /* number of checkpoints that a fresh start moved away */
    char *newest_path;       /* the path of the newest checkpoint, if its state is known */
    struct rp_saver saver;
    bool is_wanted; /* a save is to begin once none is under way */
    uint64_t next_save_step;
    struct rp_save_counts counts;
    enum rp_validity validity;
    uint64_t validity_until_ns; /* while REQUESTED: from then on the result is LATE */
};

/* Samples of the recent past, for `ringpack stat` and the log. */
struct rp_watching {
    uint64_t started_ns;
    struct rp_rate_samples rates;
    /* The read mode (read_mode.c): times of the samples that last checked, and last logged it. */
    uint64_t checked_mode_ns, logged_mode_ns;
    uint32_t logged_mode; /* enum rp_read_mode */
    bool logged_refusal;  /* a refusal of io_uring to a reader was logged */
    struct rp_wait_history wait_history;
};

/* The descriptors that wake the engine's thread. */
struct rp_loop {
    int epoll_fd, wake_fd, signal_fd;
    int ends_fd;       /* epoll set of attached consumers: sockets and processes that have ended */
    bool is_signalled; /* a signal has come: the next one ends the process at once */
    sigset_t ending_signals; /* SIGTERM, SIGINT and SIGHUP, if not ignored at the start */
};

struct rp_engine {
    const struct rp_engine_options *options;
    const struct rp_config *config;
    char *config_text; /* the text that checkpoints keep, without credentials */
    struct rp_engine_life life;
    struct rp_loop loop;
    struct rp_stream stream;
    struct rp_delivery delivery;
    struct rp_peers peers;
    struct rp_saving saving;
    struct rp_watching watching;
};

#endif
