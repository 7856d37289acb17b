/* SPDX-License-Identifier: Apache-2.0 */
/* leftovers.c — check that a pass leaves no files but checkpoints, and that every resume was from
 * the newest checkpoint that was reported as saved. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/run_journal.h"
#include "verify/killed_run.h"

#define LINE_BYTES 2048u

int rp_verify_begin_pass(struct rp_campaign *c, struct rp_error *error)
{
    char *checkpoints = rp_job_path(&c->v->job, "checkpoints");
    if (!checkpoints)
        return rp_fail(error, -ENOMEM, NULL, "out of memory");
    rp_job_remove(checkpoints);
    free(checkpoints);
    struct stat status;
    c->log_begin = fstat(c->v->job.log_fd, &status) == 0 ? status.st_size : 0;
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_checkpoint(const char *name)
{
    const char *dot = strrchr(name, '.');
    return strcmp(name, ".lock") == 0 || strcmp(name, RP_RUN_JOURNAL_NAME) == 0 ||
           (dot && strcmp(dot, ".rpc") == 0);
}

/* Count the files that are left in a directory of the job, which need not exist. */
static int count_left(struct rp_campaign *c, const char *name, bool has_checkpoints,
                      struct rp_error *error)
{
    char *path = rp_job_path(&c->v->job, "%s", name);
    if (!path)
        return rp_fail(error, -ENOMEM, NULL, "out of memory");
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        bool is_own = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                      (has_checkpoints && is_checkpoint(entry->d_name));
        if (!is_own)
            fprintf(stderr, "verify: %s/%s was left behind\n", path, entry->d_name);
        c->v->files_left += !is_own;
    }
    if (directory)
        closedir(directory);
    free(path);
    return 0;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

struct line {
    char checkpoint[LINE_BYTES]; /* file name; names sort by sequence */
    uint64_t row;
};

/* Parse "<verb><checkpoint>: row <row>". False if it is another line. A line that a kill has cut
 * off may precede the next engine's text in the same line, so the last occurrence counts, and only
 * if no other text is between it and the row. Paths of jobs have no ": ". */
static bool parse_log_line(const char *text, const char *verb, struct line *line)
{
    const char *begin = NULL;
    for (const char *next = strstr(text, verb); next; next = strstr(begin, verb))
        begin = next + strlen(verb);
    const char *end = begin ? strstr(begin, ": row ") : NULL;
    char *behind = NULL;
    uint64_t row = end ? strtoull(end + strlen(": row "), &behind, 10) : 0;
    if (!end || strstr(begin, ": ") != end || (*behind != ',' && *behind != '\n'))
        return false;
    snprintf(line->checkpoint, LINE_BYTES, "%.*s", (int)(end - begin), begin);
    line->row = row;
    return true;
}

/* The engines of this pass have logged their saves and the rows of their resumes. No resume may be
 * from an older checkpoint than the newest that was reported, or from that one at another row. */
static int compare_saves(struct rp_campaign *c, struct rp_error *error)
{
    char text[LINE_BYTES];
    struct line newest = {.row = 0}, taken;
    int fd = dup(c->v->job.log_fd);
    FILE *log = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!log || fseeko(log, c->log_begin, SEEK_SET) != 0) {
        int code = rp_fail(error, -errno, NULL, "cannot read the log: %s", rp_strerror(-errno));
        if (log)
            fclose(log);
        else if (fd >= 0)
            close(fd);
        return code;
    }
    while (fgets(text, sizeof text, log)) {
        bool is_lost = newest.checkpoint[0] && strstr(text, ": no checkpoint in ");
        if (parse_log_line(text, ": resuming from ", &taken)) {
            int order = strcmp(taken.checkpoint, newest.checkpoint);
            is_lost = order < 0 || (order == 0 && taken.row != newest.row);
        }
        if (is_lost)
            fprintf(stderr, "verify: %s was saved at row %" PRIu64 ", then: %s", newest.checkpoint,
                    newest.row, text);
        c->v->checkpoints_lost += is_lost;
        (void)parse_log_line(text, ": saved ", &newest);
    }
    fclose(log);
    return 0;
}

int rp_verify_check_leftovers(struct rp_campaign *c, struct rp_error *error)
{
    int code = count_left(c, "run", false, error);
    if (code >= 0)
        code = count_left(c, "checkpoints", true, error);
    if (code >= 0 && !c->v->verbose) /* verbose: engines do not write to the log */
        code = compare_saves(c, error);
    return code;
}
