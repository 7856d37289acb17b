/* SPDX-License-Identifier: Apache-2.0 */
/* slice.h — a measurement in parts of about a second, which take turns with parts of another one.
 *
 * The program lives for all of its slices. Each line on its standard input is a number of
 * milliseconds: it runs a slice of that length, answers with a line of JSON, and is idle until the
 * next line. The end of the input is the end of the program.
 *
 *     struct slice slice;
 *     while (slice_begin(&slice)) {
 *         while (slice_lasts(&slice))
 *             slice.tokens += ...;
 *         slice_end(&slice);
 *         slice_report(&slice);
 *     } */
#ifndef RP_BENCH_SLICE_H
#define RP_BENCH_SLICE_H

#include <stdbool.h>
#include <stdint.h>

struct slice {
    uint64_t begin_ns, until_ns, end_ns; /* CLOCK_MONOTONIC */
    uint64_t cpu_ns;                     /* this process's */
    uint64_t engine_cpu_ns;              /* the engine's; 0 without one */
    uint64_t tokens, rows;
};

bool slice_begin(struct slice *slice);
bool slice_lasts(const struct slice *slice);
void slice_end(struct slice *slice);
void slice_report(const struct slice *slice);

#endif
