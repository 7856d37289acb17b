/* SPDX-License-Identifier: Apache-2.0 */
/* report.h — a run on one page: of its engine, and of the checkpoints that are kept. */
#ifndef RP_TOOLS_REPORT_H
#define RP_TOOLS_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "checkpoint/checkpoint.h"
#include "plan/ledger.h"

/* A checkpoint that verifies. */
struct rp_report_point {
    struct rp_checkpoint_info info;
    uint64_t bytes;
    double at;                 /* seconds since 1970: when its file was written */
    uint64_t emitted, padding; /* tokens in the rows before it, or before their deal window */
    uint32_t source_count;
    uint64_t documents;
    struct rp_ledger_source *sources; /* NULL = the token cannot be read */
    char **names;                     /* the sources'; NULL = not known */
};

struct rp_report {
    const char *title;
    json_t *stat;                   /* the engine's; NULL = no engine was named */
    const char *path;               /* the checkpoints'; NULL = none were named */
    struct rp_report_point *points; /* oldest first */
    size_t point_count;
    size_t damaged, set_aside, rewound;
};

/** Read the checkpoints of a directory, or one. Those that do not verify are counted. */
RP_MUST_CHECK int rp_report_read(struct rp_report *report, const char *path,
                                 struct rp_error *error);
void rp_report_free(struct rp_report *report);

/** The page: one file without a script, which loads no other file, dark or light. */
void rp_report_page(FILE *out, const struct rp_report *report);

/* waits.c */

/** The waits of trainers by cause, over the life of the engine; prints nothing if no trainer has
 * waited. */
void rp_report_waits(FILE *out, const json_t *stat);

/* chart.c */

/* Texts of a chart belong to the program: they are not escaped. */

struct rp_chart_range {
    double least, most; /* both at least 0 */
};

/* The values of a horizontal axis. */
enum rp_axis { RP_AXIS_NUMBERS, RP_AXIS_SECONDS, RP_AXIS_TIMES /* seconds since 1970 */ };

struct rp_chart {
    const char *title, *up_unit, *across_unit;
    enum rp_axis across;
};

/** Begin a drawing of 1000 x 150 with round numbers of `up` at its left, each with the unit. */
void rp_chart_begin(FILE *out, const char *title, const char *unit, struct rp_chart_range up);
/** End it, with the values of the other axis below. */
void rp_chart_end(FILE *out, enum rp_axis axis, const char *unit, struct rp_chart_range across);
/** The texts of a horizontal axis at its left end, its middle and its right end; ends the chart. */
void rp_chart_across(FILE *out, const char *left, const char *middle, const char *right,
                     const char *unit);
/** A line of y over x, both growing or not; nothing if there are fewer than two points. */
void rp_chart_line(FILE *out, const struct rp_chart *chart, const double *x, const double *y,
                   size_t count);

#endif
