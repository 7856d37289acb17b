/* SPDX-License-Identifier: Apache-2.0 */
/* stall.c — diagnosis of a run that has stalled, printed to stderr while its processes still exist:
 * where their threads wait, the locks, and the end of the log. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "ringpack/client.h"
#include "verify/killed_run.h"

/* ---- processes ------------------------------------------------------------------------------- */

/* Print the name and the content of a file of /proc as one line, unless it cannot be read. */
static void show_file(const char *directory, const char *name)
{
    char path[600], text[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    size_t got = rp_file_head(path, text, sizeof text);
    while (got > 0 && text[got - 1] == '\n')
        got--;
    text[got] = '\0';
    for (char *end; (end = strchr(text, '\n')) != NULL;)
        *end = '|';
    if (got)
        fprintf(stderr, "  %s: %s\n", name, text);
}

static void show_process(const char *what, pid_t pid)
{
    static const char *const files[] = {"comm", "stat", "wchan", "syscall", "stack"};
    char tasks[64], task[400];
    snprintf(tasks, sizeof tasks, "/proc/%d/task", (int)pid);
    DIR *directory = pid > 0 ? opendir(tasks) : NULL;
    fprintf(stderr, "verify: %s, process %d%s\n", what, (int)pid, directory ? "" : ": is gone");
    for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(task, sizeof task, "%s/%s", tasks, entry->d_name);
        fprintf(stderr, " thread %s\n", entry->d_name);
        for (size_t i = 0; i < RP_ARRAY_COUNT(files); i++)
            show_file(task, files[i]);
    }
    if (directory)
        closedir(directory);
}

static void show_log(const struct rp_job *job)
{
    char text[4096];
    struct stat status;
    if (job->verbose || fstat(job->log_fd, &status) != 0)
        return;
    off_t from = status.st_size > (off_t)sizeof text ? status.st_size - (off_t)sizeof text : 0;
    ssize_t got = pread(job->log_fd, text, sizeof text, from);
    fprintf(stderr, "verify: the log ends with:\n%.*s\n", got > 0 ? (int)got : 0, text);
}

void rp_verify_show_processes(const struct rp_campaign *c)
{
    show_process("the engine", c->engine.pid);
    pid_t packer = rp_child_of(c->engine.pid);
    if (packer)
        show_process("a packing process", packer);
    for (uint32_t r = 0; r < c->life.world; r++)
        show_process("a rank", c->life.ranks[r].child.pid);
    fputs("verify: locks\n", stderr);
    show_file("/proc", "locks");
    show_log(&c->v->job);
}

/* ---- findings -------------------------------------------------------------------------------- */

int rp_verify_fail_ended(struct rp_campaign *c, const struct rp_child *child,
                         struct rp_error *error)
{
    if (c->v->points) /* the child may have waited for another process */
        rp_verify_show_processes(c);
    return rp_job_explain(&c->v->job, child, error);
}

int rp_verify_fail_stalled(struct rp_campaign *c, uint64_t since_ns, struct rp_error *error)
{
    struct rp_verify *v = c->v;
    char *run_dir = rp_job_path(&v->job, "run"), *text = NULL;
    for (uint32_t r = 0; r < c->life.world; r++)
        fprintf(stderr, "verify: rank %u of %u: %s, next row %" PRIu64 "\n", r, c->life.world,
                c->life.ranks[r].done ? "done" : "runs", c->life.ranks[r].next_row);
    if (run_dir && rp_run_stat(run_dir, RP_JOB_RUN, &text, error) == 0)
        fprintf(stderr, "verify: the engine: %s\n", text);
    rp_text_free(text);
    free(run_dir);
    rp_verify_show_processes(c);
    return rp_fail(error, -RP_E_TIMEOUT, "run it again with this seed and -v",
                   "no row has arrived for %" PRIu64 " s, after %" PRIu64 " kills",
                   since_ns / UINT64_C(1000000000), v->kill_count);
}
