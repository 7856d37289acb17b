/* SPDX-License-Identifier: Apache-2.0 */
/* cmd.h — the verbs of the program, and their shared functions.
 *
 * A verb is a function of its own arguments that returns the exit status; options.h parses them. A
 * table in main.c of name, function and help is the dispatcher and the usage text. `ringpack help
 * VERB` is `ringpack VERB --help`.
 *
 * Results go to stdout, everything else to stderr. A failure is reported once, by rp_cmd_report. */
#ifndef RP_TOOLS_CMD_H
#define RP_TOOLS_CMD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

enum {
    RP_EXIT_FINE = 0,
    RP_EXIT_DIFFERS = 1,  /* checked, and it differs */
    RP_EXIT_TROUBLE = 2,  /* could not be done: the message has the reason and the next command */
    RP_EXIT_UNPROVEN = 3, /* compared, but the evidence at hand does not prove an answer */
    RP_EXIT_STAGE = 4,    /* served to the end of a stage: the same command serves the next one */
};

int rp_cmd_demo(int argc, char **argv);
int rp_cmd_index(int argc, char **argv);
int rp_cmd_convert(int argc, char **argv);
int rp_cmd_inspect(int argc, char **argv);
int rp_cmd_plan(int argc, char **argv);
int rp_cmd_explain(int argc, char **argv);
int rp_cmd_state(int argc, char **argv);
int rp_cmd_annotate(int argc, char **argv);
int rp_cmd_column(int argc, char **argv);
int rp_cmd_audit(int argc, char **argv);
int rp_cmd_journal(int argc, char **argv);
int rp_cmd_serve(int argc, char **argv);
int rp_cmd_read(int argc, char **argv);
int rp_cmd_stat(int argc, char **argv);
int rp_cmd_weights(int argc, char **argv);
int rp_cmd_grow(int argc, char **argv);
int rp_cmd_metrics(int argc, char **argv);
int rp_cmd_ps(int argc, char **argv);
int rp_cmd_top(int argc, char **argv);
int rp_cmd_report_page(int argc, char **argv);
int rp_cmd_verify(int argc, char **argv);
int rp_cmd_bench(int argc, char **argv);
int rp_cmd_checkpoint(int argc, char **argv);
int rp_cmd_config(int argc, char **argv);
int rp_cmd_doctor(int argc, char **argv);
int rp_cmd_calibrate(int argc, char **argv);

/** Print `ringpack: error RP_E_X: message`, then the hint as `  next: hint`. Returns
 * RP_EXIT_TROUBLE. */
int rp_cmd_report(const struct rp_error *error);

/** Report a mistake in the command line of `verb`, with its help as the hint. Returns
 * RP_EXIT_TROUBLE. */
int rp_cmd_misuse(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Store the same mistake in `error`. Returns -RP_E_USAGE. */
int rp_cmd_mistake(struct rp_error *error, const char *verb, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** A path, a name or a message as a JSON string; rp_text_make_utf8 is applied to it. */
json_t *rp_cmd_json_text(const char *text);

/** Print a value to stdout and release it. */
void rp_cmd_print_json(json_t *value);

/** The end of a verb that compares: report the error if `code` is one, else print the list of
 * differences (NULL = they are printed) and release it. Returns the exit status. */
int rp_cmd_end_diff(int code, json_t *list, size_t count, const struct rp_error *error);

/* Texts for people; each function returns its buffer. */
#define RP_CMD_TEXT_BYTES 48
char *rp_cmd_bytes_text(uint64_t bytes, char text[RP_CMD_TEXT_BYTES]); /* 64.0 MiB */
char *rp_cmd_count_text(uint64_t count, char text[RP_CMD_TEXT_BYTES]); /* 12,345,678 */
char *rp_cmd_short_text(double value, char text[RP_CMD_TEXT_BYTES]);   /* 12.3 M */
/* 350 ms, 12.3 s, 4 min 05 s */
char *rp_cmd_seconds_text(double seconds, char text[RP_CMD_TEXT_BYTES]);

/* A progress line on stderr, which is overwritten at most ten times a second; none if stderr is not
 * a terminal. It is the `context` of the progress callbacks of corpus.h. */
struct rp_cmd_progress {
    const char *label; /* "indexing corpus.bin" */
    bool bytes;        /* done and total are bytes, not a count */
    bool shown;
    uint64_t started_ns, drawn_ns;
};
void rp_cmd_progress_begin(struct rp_cmd_progress *progress, const char *label, bool bytes);
/** `total` 0 = not known. Matches the progress callback of corpus.h. */
void rp_cmd_progress(void *progress, uint64_t done, uint64_t total);
void rp_cmd_progress_end(struct rp_cmd_progress *progress); /* wipes the line */

#endif
