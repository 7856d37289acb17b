/* SPDX-License-Identifier: Apache-2.0 */
/* verify_ends — what a pass leaves: checkpoints, none of them reported and then passed over, and
 * nothing else. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "verify_parts.h"

#define LINE_BYTES 2048

int rp_verify_begin_pass(struct rp_campaign *c, struct rp_error *error)
{
    char *checkpoints = rp_trial_path(&c->v->trial, "checkpoints");
    if (!checkpoints)
        return rp_fail(error, -ENOMEM, NULL, "out of memory");
    rp_trial_remove(checkpoints);
    free(checkpoints);
    struct stat status;
    c->log_begin = fstat(c->v->trial.log_fd, &status) == 0 ? status.st_size : 0;
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_checkpoint(const char *name)
{
    const char *dot = strrchr(name, '.');
    return strcmp(name, ".lock") == 0 || (dot && strcmp(dot, ".rpc") == 0);
}

/* Files of a directory of the trial; one that is not there has none. */
static int count_left(struct rp_campaign *c, const char *name, bool has_checkpoints,
                      struct rp_error *error)
{
    char *path = rp_trial_path(&c->v->trial, "%s", name);
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

/* What stands between `before` and `behind` in the line. False: it is another line, or a part of
 * one. */
static bool find_between(const char *line, const char *before, const char *behind,
                         char out[LINE_BYTES])
{
    const char *begin = strstr(line, before);
    begin = begin ? begin + strlen(before) : NULL;
    const char *end = begin ? strstr(begin, behind) : NULL;
    if (!end)
        return false;
    snprintf(out, LINE_BYTES, "%.*s", (int)(end - begin), begin);
    return true;
}

/* The engines of this pass tell what they saved and where they resumed: never at an older one than
 * the newest that was reported. Names sort as their numbers do. */
static int compare_saves(struct rp_campaign *c, struct rp_error *error)
{
    char line[LINE_BYTES], newest[LINE_BYTES] = "", taken[LINE_BYTES];
    int fd = dup(c->v->trial.log_fd);
    FILE *log = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!log || fseeko(log, c->log_begin, SEEK_SET) != 0) {
        int code = rp_fail(error, -errno, NULL, "cannot read the log: %s", rp_strerror(-errno));
        if (log)
            fclose(log);
        else if (fd >= 0)
            close(fd);
        return code;
    }
    while (fgets(line, sizeof line, log)) {
        bool is_lost = find_between(line, "no checkpoint in ", ": starting", taken) && newest[0];
        if (find_between(line, "resuming from ", ": row ", taken))
            is_lost = strcmp(taken, newest) < 0;
        if (is_lost)
            fprintf(stderr, "verify: %s was saved, then: %s", newest, line);
        c->v->checkpoints_lost += is_lost;
        if (find_between(line, ": saved ", ": row ", taken))
            snprintf(newest, sizeof newest, "%s", taken);
    }
    fclose(log);
    return 0;
}

int rp_verify_check_left(struct rp_campaign *c, struct rp_error *error)
{
    int code = count_left(c, "run", false, error);
    if (code >= 0)
        code = count_left(c, "checkpoints", true, error);
    if (code >= 0 && !c->v->verbose) /* then nothing is in the log */
        code = compare_saves(c, error);
    return code;
}
