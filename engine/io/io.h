/* SPDX-License-Identifier: Apache-2.0 */
/* io.h — bytes from files, by io_uring or by a pool of pread threads, and from objects in stores,
 * by libcurl, behind one method table.
 *
 * Flow: a reader thread opens one rp_io, submits reads and waits for them. Results are final: short
 * reads have been continued, EAGAIN and EINTR resubmitted, EIO tried again, end of file told apart
 * from damage. A method (io_uring, pread, or a test's fake) only submits and reaps; io.c holds that
 * logic once.
 *
 * Invariant: the memory of a read belongs to the kernel from submit until its completion is
 * returned by rp_io_wait. No timeout and no cancel stops a file read in flight (measured), so there
 * is neither here; a method of which reads can be dropped drops them when is_stopping says so.
 *
 * Threads: an rp_io belongs to the thread that opened it; a forked child must not touch it. */
#ifndef RP_IO_IO_H
#define RP_IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

struct rp_cache; /* cache/cache.h */

/* What is to be opened, and how it is known. */
struct rp_io_place {
    const char *path; /* of a file, or the URL of an object in a store */
    bool o_direct;    /* a file: try O_DIRECT */
    /* Of a file that was opened so before: the alignment that was found; 0: try it. */
    uint32_t known_alignment;
    /* Of an object, as it was when the corpus was opened: each reply is compared with both. */
    uint64_t bytes;
    const char *identity;
    struct rp_cache *cache; /* of an object: where bytes of it are kept; NULL = nowhere */
    uint32_t number;        /* of the object in the cache */
};

/* What reads are of: opened by a method, and read by any rp_io of that method. */
struct rp_io_object {
    intptr_t handle;     /* the method's; of files, the descriptor */
    int fd;              /* of a file; -1 for what is none */
    uint32_t alignment;  /* 1, or what O_DIRECT wants of offsets, lengths and memory */
    uint32_t read_bytes; /* a long run is best read in pieces of this length */
};

/* One read. With O_DIRECT, offset, bytes and buffer are aligned by the caller. */
struct rp_io_read {
    intptr_t object;       /* its handle */
    uint32_t bytes;        /* to ask for */
    uint32_t bytes_needed; /* complete with so many; less than `bytes` only at the file's end */
    uint32_t alignment;    /* 1, or the file's O_DIRECT alignment */
    bool is_second;        /* of an object: what a cache keeps of it is wrong, so ask its server */
    uint64_t offset;
    void *buffer;
    uint64_t tag; /* comes back with the completion */
};

struct rp_io_done {
    uint64_t tag;
    int result;     /* 0, or -errno; -ENODATA: the file ended before bytes_needed */
    uint32_t bytes; /* that arrived, without a gap: an error lies at offset + bytes */
};

struct rp_io_counts {
    uint64_t reads;       /* finished for good */
    uint64_t bytes;       /* that arrived with them */
    uint64_t submits;     /* batches handed to the method */
    uint64_t short_reads; /* results that were continued */
    uint64_t retries;     /* results (EAGAIN, EIO …) after which the same was asked again */
    uint64_t errors;      /* reads that finished with an error */
};

struct rp_io_method;

struct rp_io_options {
    uint32_t depth; /* reads in flight at most; 1 .. 4096 */
    /* By what the objects' method reads files, and what a cache keeps; of no use to the others. */
    const struct rp_io_method *file_method;
    /* Nobody asked for io_uring by name: if no ring can be made now, for want of memory, of a
     * descriptor or of the right to, pread takes its place. */
    bool gives_way;
    /* Why that happened, and what helps. Left alone otherwise; NULL = nobody asks. */
    struct rp_error *refusal;
    /* Cancellation callback, polled while waiting; NULL = never. Cancelled reads come back with
     * -ECANCELED. */
    bool (*is_stopping)(void *context);
    void *context;
    /* Nobody waits for these reads: they fill a cache. They do not count as its hits and misses,
     * and wait for no other fill. */
    bool is_fill;
};

/* A method: how reads reach the kernel. `submit` takes up to count reads, returns how many it took
 * (>= 0) or -errno; `reap` waits for at least `wait_min` <= max raw completions (0 = poll) and
 * returns how many it stored. A raw result is what the read would have returned: bytes >= 0 or
 * -errno. `open` fails with -errno and says why in *error. `keep`, `explain`,
 * `can_ask_again`, `use_region`,
 * `retries`, `at_server` and `describe` may be NULL. io.c never has more than options->depth reads
 * at the method.
 *
 * Objects belong to no rp_io: they are opened and closed by any thread, and closed only when no
 * read of them is in flight. */
struct rp_io_method {
    const char *name;
    int (*open_object)(struct rp_io_object *object_out, const struct rp_io_place *place,
                       struct rp_error *error);
    void (*close_object)(const struct rp_io_object *object);
    /* bytes that were read of the object are right: they are worth keeping for the next time */
    void (*keep)(const struct rp_io_object *object, uint64_t offset, const void *data,
                 uint32_t bytes);
    /* may a second read of the object bring other bytes, because its server is asked then? */
    bool (*can_ask_again)(const struct rp_io_object *object);
    /* why a read of the object failed, where that is more than its result: a negative code, or 0 */
    int (*explain)(const struct rp_io_object *object, struct rp_error *error);
    int (*open)(void **self, const struct rp_io_options *options, struct rp_error *error);
    void (*close)(void *self);
    void (*use_region)(void *self, void *region, size_t bytes);
    int (*submit)(void *self, const struct rp_io_read *reads, unsigned count);
    int (*reap)(void *self, uint64_t *tags, int64_t *results, unsigned max, unsigned wait_min);
    uint64_t (*retries)(const void *self);   /* inside the method */
    uint32_t (*at_server)(const void *self); /* requests that a server has not answered yet */
    void (*describe)(const void *self, char *text, size_t text_bytes);
};
extern const struct rp_io_method rp_io_method_uring;
extern const struct rp_io_method rp_io_method_pread;
extern const struct rp_io_method rp_io_method_http; /* where it was built with libcurl */

/* What was chosen to read a corpus. */
struct rp_io_chosen {
    const struct rp_io_method *method;      /* of all reads */
    const struct rp_io_method *file_method; /* the same; beside objects in stores, that of files */
    bool gives_way;                         /* both as in rp_io_options */
};

/** Choose a method. `name` is "io_uring", "pread" or NULL for automatic: io_uring if a ring can be
 * made and reads through it, else pread. That is a trial: a later ring may still be refused
 * (gives_way). why (>= 256 bytes) says in one line what was chosen and
 * why, with the hint that enables io_uring. A forced method that does not work is -RP_E_RESOURCE
 * with the reason. */
RP_MUST_CHECK int rp_io_choose(const char *name, const struct rp_io_method **method_out, char *why,
                               size_t why_bytes, struct rp_error *error);

/** Call `open` of *method. Where io_uring gives way (rp_io_options) *method becomes pread. */
RP_MUST_CHECK int rp_io_open_method(const struct rp_io_method **method, void **self,
                                    const struct rp_io_options *options, struct rp_error *error);

/** Reads in flight, where the user asks for so many; 0 = leaves it open: then 128 with io_uring,
 * and 64 without, as each read of an object may be a connection, and pread has 32 threads. */
uint32_t rp_io_choose_depth(const struct rp_io_method *method, uint32_t asked_for);

/** The method for objects in stores, and files beside them. NULL where it was built without. */
const struct rp_io_method *rp_io_objects(void);

struct rp_io;
RP_MUST_CHECK int rp_io_open(struct rp_io **io_out, const struct rp_io_method *method,
                             const struct rp_io_options *options, struct rp_error *error);
/** Waits for every read in flight, then frees. NULL is fine. */
void rp_io_close(struct rp_io *io);

/** Memory in which most buffers lie from now on: to be registered, if the kernel lets us. Its pages
 * are there by now and stay what they are (huge or not). At most once. */
void rp_io_use_region(struct rp_io *io, void *region, size_t bytes);

/** Reads that can be submitted now without exceeding the depth. */
uint32_t rp_io_room(const struct rp_io *io);
uint32_t rp_io_in_flight(const struct rp_io *io);
/** How many of the reads in flight wait for a server. */
uint32_t rp_io_at_server(const struct rp_io *io);
/** Queue `count` <= rp_io_room reads; they start at the latest in the next rp_io_wait. */
void rp_io_submit(struct rp_io *io, const struct rp_io_read *reads, unsigned count);
/** Wait until at least wait_min reads are finished for good (0 = poll), store up to max; returns
 * how many. */
unsigned rp_io_wait(struct rp_io *io, struct rp_io_done *done, unsigned max, unsigned wait_min);
void rp_io_get_counts(const struct rp_io *io, struct rp_io_counts *counts);
/** One line for people: "io_uring (DEFER_TASKRUN), buffers registered", "pread, up to 32 threads".
 */
void rp_io_describe(const struct rp_io *io, char *text, size_t text_bytes);

/* ---- files ----------------------------------------------------------------------------------- */

/** Whether O_DIRECT is the better way to read total_bytes of token files on this machine: false
 * where they fit in half of the available memory (the page cache will hold them over the epochs),
 * true otherwise. */
bool rp_io_prefers_direct(uint64_t total_bytes);

/** The open_object and close_object of the methods that read files. The alignment is 1 for buffered
 * reads, else that of O_DIRECT (statx, 4096 where it is silent); files that want more than 4096, or
 * refuse O_DIRECT, are opened buffered. The descriptor is O_CLOEXEC. */
RP_MUST_CHECK int rp_io_open_file(struct rp_io_object *object_out, const struct rp_io_place *place,
                                  struct rp_error *error);
void rp_io_close_file(const struct rp_io_object *object);

/** Whether the file system keeps its files in memory (tmpfs and its like): nothing is read from
 * a disk, ever. */
bool rp_io_lies_in_memory(int fd);

#endif
