/* SPDX-License-Identifier: Apache-2.0 */
/* sim.h — a machine in one thread: processes, threads, a clock, files and sockets that exist only
 * in this program, all driven by a seed.
 *
 * The engine's and the client's code runs on it as it is: the linker puts the functions of sim_*.c
 * in the place of the operating system's (wraps.cmake lists them), and every use of a shared word
 * (base/atomic.h) is a step at which another thread may run, or the process may be killed. What
 * runs when is drawn from the seed and from nothing else, so a seed always tells the same story.
 *
 * A thread is a fiber: a stack of its own, switched by hand. `sim` is the state of the machine. */
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
    struct sim_process *parent; /* whose descriptors it shares, and with whom it dies */
    bool dead, reaped;
    bool killed; /* else it ended by itself, with: */
    int status;
    uint32_t signals;                 /* pending, 1 << signal */
    uint64_t steps, kill_at, stop_at; /* counted from its start; 0 = never */
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
    uint32_t at;         /* its place among those that can run */
    const void *wait_on; /* while not runnable */
    uint64_t deadline;
    bool timed_out;
};

struct sim {
    uint64_t now_ns;
    struct sim_fiber *current; /* NULL: the program itself */
    struct sim_process processes[SIM_PROCESSES_MAX];
    uint32_t process_count;
    struct sim_fiber fibers[SIM_FIBERS_MAX];
    uint32_t fiber_count, runnable_count;
    struct sim_fiber *runnable[SIM_FIBERS_MAX];
    uint64_t next_deadline; /* none is earlier */
    uint64_t random;        /* of what runs when, and of what the machine does wrong */
    uint32_t slice;         /* steps until the next fiber is chosen */
    uint32_t slice_mean;
    uint64_t steps, switches, fibers_started;
    uint64_t timeouts; /* waits of 100 ms and less that ended without a wake-up, but for sleeps */
    bool ended;
    bool trace;
    char failure[1024]; /* empty: none */
};
extern struct sim sim;

/** A number below `limit`. */
uint64_t sim_below(uint64_t *random, uint64_t limit);
/** True `per_1000` times of 1000. */
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
/** Sleep until woken or until the deadline; false: that passed. */
bool sim_wait(const void *object, uint64_t deadline_ns);
/** Wake at most `most` fibers that wait on the object; which ones is drawn. */
unsigned sim_wake(const void *object, unsigned most);
/** Something that poll and epoll look at has changed. */
void sim_poke(void);
bool sim_wait_poke(uint64_t deadline_ns);
/** End the story: it failed. */
void sim_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- memory ---------------------------------------------------------------------------------- */

/** Memory that lasts until sim_give, or until the machine is reset. */
void *sim_take(size_t bytes, size_t alignment);
void sim_give(void *memory);
bool sim_owns(const void *memory);
void sim_memory_reset(void);
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

struct sim_write { /* since the last fsync */
    uint64_t offset, bytes;
    struct sim_write *next;
};

struct sim_entry {
    char name[64];
    struct sim_node *node;
};

struct sim_entries {
    struct sim_entry *list;
    uint32_t count, capacity;
};

/* What a descriptor, or a name in a directory, refers to: an inode. */
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
    struct sim_entries entries;     /* SIM_DIRECTORY: as seen now */
    struct sim_entries old_entries; /* … and as of its last fsync */
    const struct sim_process *lock_holder;
    int lock_fd;
    struct sim_channel *channel; /* SIM_CONNECTION, SIM_LISTENER */
    struct sim_node *listener;   /* SIM_SOCKET_NAME */
    uint64_t count;              /* SIM_EVENTFD */
    struct sim_process *process; /* SIM_PIDFD, SIM_SIGNALFD: of whom */
};

struct sim_descriptor {
    struct sim_node *node;
    struct sim_process *process; /* NULL: free */
    int flags;                   /* of open */
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
/** A file that is on the disk for good. */
void sim_file_put(const char *path, const void *data, uint64_t bytes);
struct sim_node *sim_lookup(const char *path);
/** Whatever was not fsynced may be lost, in whole or in part. Only while nothing runs. */
void sim_power_cut(void);
/** Flip a bit of a file whose name begins with `prefix`; false if fewer than two files do. */
bool sim_rot(const char *directory, const char *prefix);

/* ---- sockets, and what is waited for --------------------------------------------------------- */

uint32_t sim_ready(const struct sim_node *node, const struct sim_process *process);
void sim_channel_close(struct sim_node *node);
/** All connections of the process break, on both sides. */
void sim_hang_up(struct sim_process *process);
void sim_connection_break(struct sim_node *node);
/** The node is closed: remove the epoll entries for it and in it. */
void sim_watches_forget(const struct sim_node *node);
void sim_watches_reset(void);

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* Of 1000 calls. */
struct sim_faults {
    unsigned short_read, interrupted, read_error, again;
    unsigned save_error; /* calls of a save that fail: EIO, ENOSPC */
    unsigned spurious;   /* waits that end for no reason */
    unsigned flip;       /* reads that bring a wrong bit */
    unsigned delay;      /* reads that take up to 3 ms */
    unsigned time_jump;  /* switches at which the clock goes to the next deadline */
    uint64_t injected;
};
extern struct sim_faults sim_faults;
/** Draw whether a fault happens; if so count and trace it. */
bool sim_fault(unsigned per_1000, const char *what);

#endif
