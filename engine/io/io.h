/* SPDX-License-Identifier: Apache-2.0 */
/* io.h — reads of files, by io_uring or by a pool of pread threads, and of objects in stores, by
 * libcurl, behind one method table.
 *
 * Flow: a reader thread opens one rp_io, submits reads and waits for them. Results are final: io.c
 * has continued short reads, resubmitted after EAGAIN and EINTR, retried after EIO, and told the
 * end of the file from damage. A method (io_uring, pread, or a test's fake) only submits and reaps.
 *
 * Invariant: the memory of a read belongs to the kernel from submit until rp_io_wait returns its
 * completion. File reads have no timeout and no cancellation, because neither stops a read in
 * flight (measured). A method whose reads can be cancelled drops them if is_stopping returns true.
 *
 * Threads: an rp_io belongs to the thread that opened it; a forked child must not touch it. */
#ifndef RP_IO_IO_H
#define RP_IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

struct rp_cache; /* cache/cache.h */

/* Arguments of open_object. */
struct rp_io_place {
    const char *path; /* a file, or the URL of a remote object */
    bool o_direct;    /* files: try O_DIRECT */
    /* Files: the alignment of an earlier descriptor of this file; 0: find it by a trial. */
    uint32_t known_alignment;
    /* Remote objects: size and identity when the corpus was opened. Each reply must match both. */
    uint64_t bytes;
    const char *identity;
    struct rp_cache *cache; /* remote objects; NULL: not cached */
    uint32_t number;        /* number of the object in the cache */
};

/* A source of reads: opened by a method, and read by any rp_io of that method. */
struct rp_io_object {
    intptr_t handle;     /* the method's own; for files, the descriptor */
    int fd;              /* -1 for a remote object */
    uint32_t alignment;  /* 1, or O_DIRECT's alignment of offsets, lengths and memory */
    uint32_t read_bytes; /* the best length of one read within a long run */
};

/* One read. For O_DIRECT, the caller aligns offset, bytes and buffer. */
struct rp_io_read {
    intptr_t object;       /* its handle */
    uint32_t bytes;        /* length of the read */
    uint32_t bytes_needed; /* enough to complete it; less than `bytes` only at the file's end */
    uint32_t alignment;    /* 1, or the file's O_DIRECT alignment */
    bool is_second;        /* remote objects: the cached bytes are wrong, so bypass the cache */
    uint64_t offset;
    void *buffer;
    uint64_t tag; /* returned with the completion */
};

struct rp_io_done {
    uint64_t tag;
    int result;     /* 0, or -errno; -ENODATA: the file ended before bytes_needed */
    uint32_t bytes; /* arrived without a gap: an error is at offset + bytes */
};

struct rp_io_counts {
    uint64_t reads;       /* finished reads */
    uint64_t bytes;       /* arrived with them */
    uint64_t short_reads; /* continued results */
    uint64_t retries;     /* resubmitted results (EAGAIN, EIO …) */
    uint64_t errors;      /* reads that failed */
};

struct rp_io_method;

struct rp_io_options {
    uint32_t depth; /* reads in flight at most; 1 .. 4096 */
    /* Method for local files and cached bytes. Only the method for remote objects uses it. */
    const struct rp_io_method *file_method;
    /* The user did not choose io_uring by name: pread replaces it if a ring is refused for want of
     * memory, of a descriptor or of a permission. */
    bool may_fall_back;
    /* Receives the reason of that refusal, with a hint; unchanged without one. May be NULL. */
    struct rp_error *refusal;
    /* Cancellation callback, polled while waiting; NULL = never. Cancelled reads come back with
     * -ECANCELED. */
    bool (*is_stopping)(void *context);
    void *context;
    /* The reads fill a cache: they are not counted as its hits and misses, and wait for no other
     * prefill. */
    bool is_prefill;
};

/* A method: a way to read. `submit` takes up to count reads, and returns how many it took (>= 0) or
 * -errno. `reap` waits for at least `wait_min` <= max raw completions (0 = poll), and returns how
 * many it stored. A raw result is the return value of the read: bytes >= 0 or -errno. `open` fails
 * with -errno and fills *error. `keep`, `explain`, `can_ask_again`, `use_region`, `retries`,
 * `at_server` and `describe` may be NULL. At most options->depth reads are at the method.
 *
 * Objects belong to no rp_io: any thread may open and close them, but close one only while no read
 * of it is in flight. */
struct rp_io_method {
    const char *name;
    int (*open_object)(struct rp_io_object *object_out, const struct rp_io_place *place,
                       struct rp_error *error);
    void (*close_object)(const struct rp_io_object *object);
    /* Cache these bytes: the reader has verified them. */
    void (*keep)(const struct rp_io_object *object, uint64_t offset, const void *data,
                 uint32_t bytes);
    /* Can a second read return other bytes, because it bypasses the cache? */
    bool (*can_ask_again)(const struct rp_io_object *object);
    /* Why a read of the object failed, if more is known than its result: a negative code, or 0. */
    int (*explain)(const struct rp_io_object *object, struct rp_error *error);
    int (*open)(void **self, const struct rp_io_options *options, struct rp_error *error);
    void (*close)(void *self);
    void (*use_region)(void *self, void *region, size_t bytes);
    int (*submit)(void *self, const struct rp_io_read *reads, unsigned count);
    int (*reap)(void *self, uint64_t *tags, int64_t *results, unsigned max, unsigned wait_min);
    uint64_t (*retries)(const void *self);   /* inside the method */
    uint32_t (*at_server)(const void *self); /* unanswered requests */
    void (*describe)(const void *self, char *text, size_t text_bytes);
};
extern const struct rp_io_method rp_io_method_uring;
extern const struct rp_io_method rp_io_method_pread;
extern const struct rp_io_method rp_io_method_http; /* only in builds with libcurl */

/* The chosen methods of a corpus. */
struct rp_io_chosen {
    const struct rp_io_method *method; /* for all reads */
    /* For files: the same method, unless the corpus has remote objects. See rp_io_options. */
    const struct rp_io_method *file_method;
    bool may_fall_back; /* see rp_io_options */
};

/** Choose a method. `name` is "io_uring", "pread" or NULL for automatic: io_uring if a ring can be
 * made and reads a byte, else pread. A later ring may still be refused (may_fall_back). why (>= 256
 * bytes) receives one line: the choice, its reason, and the hint that enables io_uring. A forced
 * method that does not work is -RP_E_RESOURCE with the reason. */
RP_MUST_CHECK int rp_io_choose(const char *name, const struct rp_io_method **method_out, char *why,
                               size_t why_bytes, struct rp_error *error);

/** Call `open` of *method. If io_uring is refused and may_fall_back is set, *method becomes pread.
 */
RP_MUST_CHECK int rp_io_open_method(const struct rp_io_method **method, void **self,
                                    const struct rp_io_options *options, struct rp_error *error);

/** Reads in flight: the user's number, or if it is 0 (automatic), 128 with io_uring and 64 with the
 * other methods, as each read of an object may be a connection, and pread has 32 threads. */
uint32_t rp_io_choose_depth(const struct rp_io_method *method, uint32_t asked_for);

/** The method for corpora with remote objects. NULL in builds without libcurl. */
const struct rp_io_method *rp_io_objects(void);

struct rp_io;
RP_MUST_CHECK int rp_io_open(struct rp_io **io_out, const struct rp_io_method *method,
                             const struct rp_io_options *options, struct rp_error *error);
/** Waits for every read in flight, then frees. NULL is fine. */
void rp_io_close(struct rp_io *io);

/** Register the memory that contains most buffers, if the kernel allows it. Its pages must be
 * populated, and keep their size (huge or not). At most once. */
void rp_io_use_region(struct rp_io *io, void *region, size_t bytes);

/** Reads that can be submitted now without exceeding the depth. */
uint32_t rp_io_room(const struct rp_io *io);
uint32_t rp_io_in_flight(const struct rp_io *io);
/** Reads in flight that wait for a server. */
uint32_t rp_io_at_server(const struct rp_io *io);
/** Queue `count` <= rp_io_room reads; they start at the latest in the next rp_io_wait. */
void rp_io_submit(struct rp_io *io, const struct rp_io_read *reads, unsigned count);
/** Wait until at least wait_min reads are finished (0 = poll), and store up to max of them. Returns
 * the number of stored reads. */
unsigned rp_io_wait(struct rp_io *io, struct rp_io_done *done, unsigned max, unsigned wait_min);
void rp_io_get_counts(const struct rp_io *io, struct rp_io_counts *counts);
/** One line for messages: "io_uring (DEFER_TASKRUN), buffers registered", "pread, up to 32
 * threads". */
void rp_io_describe(const struct rp_io *io, char *text, size_t text_bytes);

/* ---- files ----------------------------------------------------------------------------------- */

/** Is O_DIRECT better for total_bytes of token files on this machine? False if they fit into half
 * of the available memory: the page cache will hold them over the epochs. */
bool rp_io_prefers_direct(uint64_t total_bytes);

/** open_object and close_object of the methods for files. The alignment is 1 for buffered reads,
 * else O_DIRECT's (from statx; 4096 if it gives none). Files that need more than 4096, or refuse
 * O_DIRECT, are opened buffered. The descriptor is O_CLOEXEC. */
RP_MUST_CHECK int rp_io_open_file(struct rp_io_object *object_out, const struct rp_io_place *place,
                                  struct rp_error *error);
void rp_io_close_file(const struct rp_io_object *object);

/** Does the file system keep its files in memory (tmpfs and its like), and never read a disk? */
bool rp_io_lies_in_memory(int fd);

#endif
