/* SPDX-License-Identifier: Apache-2.0 */
/* saves.h — `ringpack bench --checkpoint`: the cost of checkpoints of a config.
 *
 * An engine of the config and its trainers run as they would, and the engine saves again and again
 * to a directory next to checkpoint_dir, which is on the same disk. Before each save nothing is
 * done for as long as a save takes, and after it the same bytes are written plainly: so the
 * compared values were measured by turns. Medians of all saves are reported. */
#ifndef RP_TOOLS_BENCH_SAVES_H
#define RP_TOOLS_BENCH_SAVES_H

#include "bench/bench.h"

/* part, its key in JSON and of the engine's status, its meaning */
#define RP_BENCH_PARTS(X)                                                                          \
    X(COPY, "copy", "contents are copied; the file is written meanwhile")                          \
    X(WRITE, "write", "past the page cache")                                                       \
    X(SYNC, "sync", "fsync of the file")                                                           \
    X(NAME, "name", "rename, and fsync of the directory")                                          \
    X(READ_BACK, "read_back", "compared, after the save was acknowledged")

enum rp_bench_part {
#define RP_BENCH_PART(name, key, what) RP_BENCH_##name,
    RP_BENCH_PARTS(RP_BENCH_PART)
#undef RP_BENCH_PART
        RP_BENCH_PART_COUNT
};

/* How long calls of next() took. */
struct rp_bench_pause {
    size_t calls;
    double median, p99, longest; /* seconds */
};

struct rp_bench_saves {
    size_t count;
    bool began_full; /* the rings were full when the first save began */
    double bytes;
    double seconds;                    /* a save's, until it is acknowledged */
    double busy_seconds;               /* until it is also read back */
    double parts[RP_BENCH_PART_COUNT]; /* seconds */
    double plain_seconds;              /* to write and fsync the same bytes */
    double per_plain;                  /* rate of the save over the rate of that */
    struct rp_bench_pause quiet, saving;
    double lost_seconds;  /* that a trainer waits longer because of a save */
    double batch_seconds; /* a trainer's, between saves */
    double step_batches;
    double cheap_seconds; /* the interval where a save costs a thousandth of the run */
};

/** Save for as long as bench->seconds says, a few times at least. Trainers take `step_seconds` for
 * a batch. Returns 0 also if an interrupt ended it: saves->count has the measured ones. */
RP_MUST_CHECK int rp_bench_measure_saves(struct rp_bench *bench, double step_seconds,
                                         struct rp_bench_saves *saves, struct rp_error *error);

void rp_bench_print_saves(const struct rp_bench_saves *saves);
void rp_bench_print_saves_json(const struct rp_bench_saves *saves);

#endif
