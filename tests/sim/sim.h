/* SPDX-License-Identifier: Apache-2.0 */
/* sim.h — a simulated machine in one thread: processes, threads, a clock, files and sockets that
 * exist only in this program, all driven by a seed.
 *
 * The code of engine and client runs on it unchanged. The linker replaces functions of the system
 * by those that sim_*.c define with WRAP, and every use of a shared word (base/atomic.h) is a step
 * where another thread may run, or the process may be killed. The schedule depends only on the
 * seed, so a seed is always the same story.
 *
 * A thread is a fiber: a stack that the program switches to by itself. `sim` is the state of the
 * machine. */
#ifndef RP_TESTS_SIM_H
#define RP_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SIM_FIBERS_MAX 256
#define SIM_PROCESSES_MAX 128
#define SIM_NEVER UINT64_MAX
#define SIM_MS 1000000u
#define SIM_S 1000000000ull

/* ---- processes and fibers -------------------------------------------------------------------- */

struct sim_process {
    int pid;
    const char *name;
    struct sim_process *parent; /* it shares the parent's descriptors, and dies with it */
    bool dead, reaped;
    bool killed; /* otherwise it has ended by itself with `status` */
    int status;
    uint32_t signals;                 /* pending, 1 << signal */
    uint64_t steps, kill_at, stop_at; /* steps since its start; kill_at, stop_at: 0 = never */
    uint64_t stop_ns, stopped_until;
    uint32_t fibers; /* alive */
};

struct sim_fiber {
    void *stack_pointer;
    uint8_t *stack;
    struct sim_process *process;
    void *(*entry)(void *);
    void *argument;
    int saved_errno;
    bool alive, runnable;
    uint64_t serial;     /* its pthread_t */
    uint32_t at;         /* index in sim.runnable */
    const void *wait_on; /* while not runnable */
    uint64_t deadline;
    bool timed_out;
};

struct sim {
    uint64_t now_ns;
    struct sim_fiber *current; /* NULL = the program itself */
    struct sim_process processes[SIM_PROCESSES_MAX];
    uint32_t process_count;
    struct sim_fiber fibers[SIM_FIBERS_MAX];
    uint32_t fiber_count, runnable_count;
    struct sim_fiber *runnable[SIM_FIBERS_MAX];
    uint64_t next_deadline; /* no waiting fiber has an earlier one */
    uint64_t random;        /* decides the schedule and the faults */
    uint32_t slice;         /* steps until the next fiber is chosen */
    uint32_t slice_mean;
    uint64_t steps, switches, fibers_started;
    uint64_t timeouts; /* waits that ended by their deadline, sleeps not counted */
    bool ended;
    bool trace;
    char failure[1024]; /* empty = none */
};
extern struct sim sim;

/** A number below `limit`. */
uint64_t sim_below(uint64_t *random, uint64_t limit);
/** True with a probability of per_1000 / 1000. */
bool sim_chance(uint64_t *random, unsigned per_1000);

/** Reset the machine for a new seed; slice_mean: the mean number of steps between two switches. */
void sim_begin(uint64_t seed, uint32_t slice_mean);
/** Run `entry` as the first process until it returns or something fails. */
void sim_run(void *(*entry)(void *), void *argument);
/** Free everything that the machine holds. */
void sim_end(void);

struct sim_process *sim_spawn(const char *name, void *(*entry)(void *), void *argument);
struct sim_fiber *sim_fiber_start(struct sim_process *process, void *(*entry)(void *),
                                  void *argument);
/** Kill the process: none of its fibers runs again, and its descriptors are closed. */
void sim_kill(struct sim_process *process);
/** End the calling process. */
void sim_exit(int status) __attribute__((noreturn));
struct sim_process *sim_find(int pid);

/** A step of the calling fiber. */
void sim_step(void);
void sim_yield(void);
/** Sleep until sim_wake, or until the deadline; then it returns false. */
bool sim_wait(const void *object, uint64_t deadline_ns);
/** Wake at most `most` random fibers that wait on the object. Returns how many. */
unsigned sim_wake(const void *object, unsigned most);
/** Wake all fibers in sim_wait_poke: something that poll and epoll report has changed. */
void sim_poke(void);
bool sim_wait_poke(uint64_t deadline_ns);
/** End the story with a failure. */
void sim_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- memory ---------------------------------------------------------------------------------- */

/** Memory that lasts until sim_give, or until the machine is reset. */
void *sim_take(size_t bytes, size_t alignment);
void sim_give(void *memory);
bool sim_owns(const void *memory);
void sim_memory_reset(void);
/** The file that is mapped at the address, and which of its bytes is there; or NULL. */
struct sim_node *sim_mapped_node(const void *address, uint64_t *offset);
/** The process's newest mapping of that length, or NULL. */
void *sim_find_map(const struct sim_process *process, uint64_t bytes);

/* ---- files ----------------------------------------------------------------------------------- */

enum sim_kind {
    SIM_FILE,
    SIM_DIRECTORY,
    SIM_SOCKET_NAME,
    SIM_MEMORY, /* memfd */
    SIM_CONNECTION,
    SIM_LISTENER,
    SIM_EVENTFD,
    SIM_SIGNALFD,
    SIM_EPOLL,
    SIM_PIDFD,
};

struct sim_write { /* a write since the last fsync */
    uint64_t offset, bytes;
    struct sim_write *next;
};

#define SIM_PAGE_BYTES 512u
#define SIM_PAGES_MAX 256u

struct sim_entry {
    char name[64];
    struct sim_node *node;
};

struct sim_entries {
    struct sim_entry *list;
    uint32_t count, capacity;
};

/* The target of a descriptor, or of a name in a directory: an inode. */
struct sim_node {
    enum sim_kind kind;
    uint32_t descriptors, maps, names;
    uint64_t number;
    uint8_t *data; /* SIM_FILE, SIM_MEMORY */
    uint64_t bytes, capacity;
    uint8_t *durable; /* as of the last fsync */
    uint64_t durable_bytes;
    struct sim_write *writes;
    bool bytes_changed;             /* since the last fsync */
    bool is_cached[SIM_PAGES_MAX];  /* SIM_FILE: pages that the page cache has */
    struct sim_entries entries;     /* SIM_DIRECTORY: the current names */
    struct sim_entries old_entries; /* the names at the last fsync */
    const struct sim_process *lock_holder;
    int lock_fd;
    struct sim_channel *channel; /* SIM_CONNECTION, SIM_LISTENER */
    struct sim_node *listener;   /* SIM_SOCKET_NAME */
    uint64_t count;              /* SIM_EVENTFD */
    struct sim_process *process; /* SIM_PIDFD, SIM_SIGNALFD */
};

struct sim_descriptor {
    struct sim_node *node;
    struct sim_process *process; /* NULL = free */
    int flags;                   /* open's */
    uint64_t position;
};

#define SIM_FD_FIRST 1000
#define SIM_FDS_MAX 512

/** The node of a descriptor of the calling process, or NULL with errno set. */
struct sim_node *sim_node_of(int fd);
struct sim_descriptor *sim_descriptor_of(int fd);
struct sim_node *sim_node_new(enum sim_kind kind);
int sim_descriptor_new(struct sim_node *node, int flags);
void sim_close_all(struct sim_process *process);
void sim_files_reset(void);
/** Make a file that is durable. */
void sim_file_put(const char *path, const void *data, uint64_t bytes);
struct sim_node *sim_lookup(const char *path);
/** Lose random parts of the unsynced bytes. Only while no process runs. */
void sim_power_cut(void);
/** Flip a bit of a file whose name begins with `prefix`; false if there are fewer than two of them.
 */
bool sim_rot(const char *directory, const char *prefix);

/* ---- the page cache -------------------------------------------------------------------------- */

/* The machine's query of its page cache: cachestat, mincore, or neither. */
enum sim_page_cache_asked { SIM_COUNTED, SIM_LISTED, SIM_PROBED, SIM_ASKED_WAYS };

struct sim_page_cache {
    enum sim_page_cache_asked asked;
    unsigned go, come; /* after how many of 1000 queries pages of the file have gone, or come */
    bool is_short;     /* memory has room for a part of the corpus, another one at each query */
};
extern struct sim_page_cache sim_page_cache;

/** Bytes [first, first + bytes) of the file were read. */
void sim_pages_bring(struct sim_node *node, uint64_t first, uint64_t bytes);
/** No page of the file is there any more. */
void sim_pages_drop(struct sim_node *node);
/** Are all pages with these bytes there? */
bool sim_pages_hold(struct sim_node *node, uint64_t first, uint64_t bytes);
/** cachestat(2) */
long sim_cachestat(int fd, const uint64_t range[2], uint64_t counts[5]);

/* ---- sockets, poll and epoll ----------------------------------------------------------------- */

uint32_t sim_ready(const struct sim_node *node, const struct sim_process *process);
void sim_channel_close(struct sim_node *node);
/** Break all connections of the process, on both sides. */
void sim_hang_up(struct sim_process *process);
void sim_connection_break(struct sim_node *node);
/** Remove the epoll entries of a node that is closed, and, if it is an epoll, all of its entries.
 */
void sim_watches_forget(const struct sim_node *node);
void sim_watches_reset(void);

/* ---- faults ---------------------------------------------------------------------------------- */

/* How many of 1000 calls. */
struct sim_faults {
    unsigned short_read, interrupted, read_error, again;
    unsigned save_error; /* calls of a save that fail: EIO, ENOSPC */
    unsigned spurious;   /* waits that end without a reason */
    unsigned flip;       /* reads that return a wrong bit */
    unsigned delay;      /* reads that take up to 3 ms, and new memory that takes up to 20 ms */
    unsigned time_jump;  /* switches that move the clock to the next deadline */
    uint64_t injected;
};
extern struct sim_faults sim_faults;
/** Whether a fault happens, by chance. If so, count and trace it. */
bool sim_fault(unsigned per_1000, const char *what);

#endif
