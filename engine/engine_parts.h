/* SPDX-License-Identifier: Apache-2.0 */
/* engine_parts.h — what the files of the engine share: engine.c (the loop), engine_start.c (where
 * to begin), engine_peers.c (who is connected), engine_contents.c and engine_save.c (checkpoints),
 * engine_probe.c (states of rows), engine_move.c (rings, flow and the row where they stand),
 * engine_stat.c (what is shown), engine_attach.c (what is asked for).
 *
 * Threads: everything here belongs to the engine's own thread, but for `struct rp_saver`, which
 * says what it shares. */
#ifndef RP_ENGINE_PARTS_H
#define RP_ENGINE_PARTS_H

#include <pthread.h>
#include <sys/types.h>

#include "checkpoint/checkpoint.h"
#include "engine.h"
#include "flow/contents.h"
#include "flow/flow.h"
#include "plan/plan.h"
#include "shm/ring.h"
#include "shm/socket.h"

/* What the engine remembers of a seat at a ring: a replica of a rank, whose trainers come and go.
 */
struct rp_seat {
    struct rp_ring *ring;
    uint32_t replica;
    bool had_trainer;  /* since the ring was made */
    bool ever_trained; /* since the engine started */
    bool had_all;      /* the last one, when it left */
    bool guessed;      /* where its trainer goes on, nobody knows until one comes (engine_move.c) */
    bool was_absent;   /* before the newest trainer was placed, which leads others over */
    uint64_t came_in;  /* the return in which a trainer came here last, or 0 (engine_move.c) */
};

/* A peer on the socket. */
struct rp_connection {
    int fd;               /* -1 = free */
    struct rp_seat *seat; /* of a trainer; else NULL */
    int32_t pid;          /* as it said; for listings */
    uint32_t asks; /* enum rp_request_kind whose reply is still owed (CHECKPOINT, STOP), or 0 */
    bool in_save;  /* the save under way is the one it asks for */
};
#define RP_CONNECTIONS_MAX 1024u

/* Takes one checkpoint at a time on its own thread: copy behind a hold, then write. */
struct rp_saver {
    pthread_t thread;
    bool busy;           /* engine's thread only: a save is under way */
    int done_fd;         /* eventfd: written at each phase */
    struct rp_a32 phase; /* enum below. Writer: the saver, release; reader: the engine, acquire.
                            PAIRS saver-phase */
    bool hold_released, told; /* engine's thread only, of the save under way */

    /* in: set by the engine before the thread starts */
    struct rp_checkpoint_dir *directory;
    struct rp_checkpoint_info info;
    void *state;
    size_t state_bytes;
    char *config_text;
    bool gives_way; /* to trainers and packers, once the copy is taken; not when we are ending */
    struct rp_content_source *sources; /* where contents lie in shared memory, ascending */
    size_t source_count;
    /* out: read by the engine after phase SAVED */
    int code;
    char *path;
    struct rp_error error;
};
enum rp_saver_phase { RP_SAVER_COPYING, RP_SAVER_COPIED, RP_SAVER_SAVED, RP_SAVER_DONE };

/* `count` tokens of `width` bytes at token `offset` of `row`, in a batch slot or a ticket. */
struct rp_content_source {
    uint64_t row;
    uint32_t offset, count, width;
    uint32_t kept; /* bytes a token in the checkpoint: 2 or 4 */
    const uint8_t *tokens;
};

/* What an epoll event is about; `index` says which connection or packer. */
enum rp_watch {
    RP_WATCH_WAKE,
    RP_WATCH_SIGNAL,
    RP_WATCH_LISTENER,
    RP_WATCH_SAVER,
    RP_WATCH_LIFELINE,
    RP_WATCH_CONNECTION,
    RP_WATCH_PACKER
};

enum rp_engine_phase {
    RP_ENGINE_RUNNING,
    RP_ENGINE_FAILED,   /* no batch will follow; those published wait for trainers yet to come */
    RP_ENGINE_STOPPING, /* told to stop, or failed: a last checkpoint is due or under way */
    RP_ENGINE_DONE,
};

struct rp_engine {
    const struct rp_engine_options *options;
    const struct rp_config *config;
    char *config_text; /* what `checkpoint show` prints */

    struct rp_corpus *corpus;
    struct rp_plan *plan, *scout; /* the flow's while it runs */
    struct rp_plan *probe;        /* ours: checks tokens that trainers bring, and finds rows */
    struct rp_hash128 identity;
    void *zero_state, *start_state; /* tokens of row 0 and of the row this run began at */
    size_t zero_bytes, start_bytes;
    uint64_t start_row;
    uint64_t state_bytes_max;
    struct rp_contents *contents;

    uint64_t generation;
    uint64_t base_row;      /* row of micro-batch 0 */
    uint64_t batch_rows;    /* rows of one micro-batch over all ranks */
    uint64_t micro_batches; /* in a step */
    struct rp_geometry geometry;
    uint32_t ring_count;
    struct rp_ring *rings;
    uint32_t seat_count;
    struct rp_seat *seats; /* [ring * replicas + replica] */
    uint64_t returns;      /* of trainers, so far; the last one is to: */
    uint64_t return_row;
    struct rp_flow *flow;
    bool flow_running, flow_ended;
    const struct rp_io_method *method;
    bool direct;

    struct rp_listener listener;
    bool accepts_later; /* no descriptor was free for who has connected */
    struct rp_connection *connections;
    int epoll_fd, wake_fd, signal_fd;

    struct rp_checkpoint_dir *checkpoints;
    struct rp_saver saver;
    bool save_wanted;
    uint64_t next_save_step;

    enum rp_engine_phase phase;
    bool signalled;
    int asker_fd;  /* connection of the trainer that is being placed, or -1 */
    int exit_code; /* what rp_engine_run returns; error is in *error */
    struct rp_error *error;
    uint64_t started_ns, failed_ns;
    uint64_t left_ns; /* when the last trainer left at the end of the stream, or 0 */
    uint64_t published, published_ns; /* the sum of all tails, and when it was first seen so */
    bool gives_way; /* a seat that nobody has taken was passed over since the last attach */
};

#define RP_ENGINE_TEXT_BYTES (sizeof(struct rp_error))

static inline bool rp_seat_is_taken(const struct rp_seat *seat)
{
    return rp_ring_is_taken(seat->ring, seat->replica);
}
/** The batch that its trainer gives back next; of a seat that nobody has taken, that it will get.
 */
static inline uint64_t rp_seat_stands(const struct rp_seat *seat)
{
    return seat->ring->seats[seat->replica].release;
}

#define RP_SEAT_NAME_BYTES 40u

/* The parts, from the ground up: each calls only those above it. */

/* engine_peers.c */
/** Take a last checkpoint if there is a directory for it, then end. */
void rp_engine_begin_stop(struct rp_engine *engine);
/** *engine->error stops the stream: tell the trainers; what was published is theirs all the same.
 */
void rp_engine_fail(struct rp_engine *engine, int code);
/** "message\nhint": how an error travels to a trainer. */
void rp_engine_error_text(const struct rp_error *error, char text[RP_ENGINE_TEXT_BYTES]);
/** Wake the loop when fd is readable. Closing fd ends it. Returns 0 or -errno. */
int rp_engine_watch(struct rp_engine *engine, int fd, enum rp_watch watch, uint32_t index);
/** Take in whoever has connected; those for whom there is no descriptor at a later call. */
void rp_engine_accept(struct rp_engine *engine);
/** "rank 3", or where there are several "rank 3, replica 1". Returns text. */
const char *rp_seat_name(const struct rp_seat *seat, char text[RP_SEAT_NAME_BYTES]);
/** The process that has taken a seat, as it said; 0 if nobody has. */
int32_t rp_seat_pid(const struct rp_engine *engine, const struct rp_seat *seat);
/** Is a trainer attached to this ring (or, NULL, to any)? */
bool rp_engine_is_attended(const struct rp_engine *engine, const struct rp_ring *ring);
/** Does somebody who is attached wait for his next batch? */
bool rp_engine_is_waiting(const struct rp_engine *engine);
/** Has the stream ended, everybody had everything, and is nobody there any more? */
bool rp_engine_has_delivered_all(struct rp_engine *engine);
/** Is there no more room in its ring because of this seat? */
bool rp_seat_fills_ring(const struct rp_seat *seat);
void rp_engine_close_connection(struct rp_engine *engine, struct rp_connection *connection);
void rp_engine_reply(struct rp_engine *engine, struct rp_connection *connection, uint32_t kind,
                     int code, const char *text);
/** End every connection but those that wait for the end of all of it, or (waiting) these. */
void rp_engine_close_connections(struct rp_engine *engine, bool waiting);

/* engine_start.c */
/** Open checkpoint, corpus and plans; set the start state. */
RP_MUST_CHECK int rp_engine_find_start(struct rp_engine *engine, struct rp_error *error);

/* engine_contents.c */
/** Set the saver's sources. Behind a hold, which keeps them as they are. */
void rp_engine_list_contents(struct rp_engine *engine);

/* engine_save.c */
/** Micro-batches below it have been consumed by every local rank. */
uint64_t rp_engine_consumed(const struct rp_engine *engine);
/** The next checkpoint is due at the next multiple of checkpoint_steps that trainers consume. */
void rp_engine_schedule_save(struct rp_engine *engine);
/** Have the one that is due made at the next occasion; before anything that counts steps anew. */
void rp_engine_want_due_save(struct rp_engine *engine);
/** Begin a checkpoint. Returns true if one was begun or failed at once (which has been reported),
 * false if it has to be tried again later: one is busy, or the state is not at hand yet. */
bool rp_engine_begin_save(struct rp_engine *engine);
/** done_fd was written: release the hold, or take the result and answer those who asked. */
void rp_engine_continue_save(struct rp_engine *engine);
/** Wait until a save under way has copied what it wants from shared memory, which is about to
 * change. */
void rp_engine_finish_copy(struct rp_engine *engine);

/* engine_probe.c */
/** Is it of the stream that is served? Moves the probe plan. UNKNOWN: its row is far from those
 * whose states are at hand. */
enum rp_stream_of { RP_STREAM_OURS, RP_STREAM_OTHER, RP_STREAM_UNKNOWN };
enum rp_stream_of rp_engine_stream_of(struct rp_engine *engine, const void *token, size_t bytes);
/** Move the probe plan to `row`, from the nearest state at or before it. `token` may be NULL;
 * behind the end of the stream it must be the last one. -RP_E_STOPPED: a signal came, or the asker
 * left. */
RP_MUST_CHECK int rp_engine_probe_row(struct rp_engine *engine, uint64_t row, const void *token,
                                      size_t bytes, struct rp_error *error);
/** The same for the first row of a micro-batch; behind the end of the stream it stands at the end.
 */
RP_MUST_CHECK int rp_engine_probe_batch(struct rp_engine *engine, uint64_t batch,
                                        struct rp_error *error);

/* engine_move.c */
#define RP_ALL_SEATS UINT32_MAX
/** Make (or make anew) a ring whose seat `replica`, or all of them, stands at `batch` of the
 * present base; copies unreleased batches. Trainers in its other seats are led over. */
RP_MUST_CHECK int rp_engine_renew_ring(struct rp_engine *engine, uint32_t ring, uint32_t replica,
                                       uint64_t batch, struct rp_error *error);
/** Start the flow at the lowest tail of all rings; the probe plan stands there. */
RP_MUST_CHECK int rp_engine_start_flow(struct rp_engine *engine, struct rp_error *error);
/** Stop the flow, and start it again where it was, or, after rings have changed, at their lowest
 * tail. */
RP_MUST_CHECK int rp_engine_restart_flow(struct rp_engine *engine, struct rp_error *error);
/** Make a ring stand so that a trainer can take the seat where the request wants to go on;
 * *batch_out is its number. names_row: the trainer named the row itself, else it is its token's. If
 * it fails the engine goes on as it was, unless flow_running is false: then it cannot. */
RP_MUST_CHECK int rp_engine_place_ring(struct rp_engine *engine, struct rp_seat *seat,
                                       const struct rp_request *request, bool names_row,
                                       const void *token, uint64_t *batch_out,
                                       struct rp_error *error);

/** Let seats that nobody has taken give way to a trainer that waits for its next batch. */
void rp_engine_give_way(struct rp_engine *engine);

/* engine_stat.c */
/** One JSON object; malloc'ed, NULL when out of memory. */
char *rp_engine_stat(const struct rp_engine *engine);

/* engine_attach.c */
/** Something came in on a connection. */
void rp_engine_serve_connection(struct rp_engine *engine, struct rp_connection *connection);

#endif
