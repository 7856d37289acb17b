/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c — processor time of every thread of an engine, from /proc/PID/task. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "bench/bench.h"

/* The first line of /proc/PID/task/TID/NAME. */
static bool read_line(const struct rp_bench_thread *thread, const char *name, char *text,
                      size_t bytes)
{
    char path[80];
    snprintf(path, sizeof path, "/proc/%d/task/%d/%s", thread->process, thread->thread, name);
    return rp_file_head(path, text, bytes) > 0;
}

/* schedstat has the nanoseconds on a core, and the nanoseconds runnable without one. */
static bool read_thread(struct rp_bench_thread *thread)
{
    char text[128];
    unsigned long long ran, queued;
    if (!read_line(thread, "comm", thread->name, sizeof thread->name) ||
        !read_line(thread, "schedstat", text, sizeof text) ||
        sscanf(text, "%llu %llu", &ran, &queued) != 2)
        return false;
    thread->name[strcspn(thread->name, "\n")] = '\0';
    thread->seconds = (double)ran / 1e9;
    thread->queued_seconds = (double)queued / 1e9;
    return true;
}

static void read_process(struct rp_bench_threads *threads, pid_t process)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        struct rp_bench_thread thread = {.process = process, .thread = atoi(entry->d_name)};
        if (thread.thread > 0 && threads->count < RP_BENCH_THREADS_MAX && read_thread(&thread))
            threads->thread[threads->count++] = thread;
    }
    if (directory)
        closedir(directory);
}

void rp_bench_threads_read(struct rp_bench_threads *threads, pid_t process)
{
    *threads = (struct rp_bench_threads){.count = 0};
    read_process(threads, process);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", process, process);
    FILE *file = fopen(path, "re");
    for (int child; file && fscanf(file, "%d", &child) == 1;)
        read_process(threads, child);
    if (file)
        fclose(file);
}

static int more_first(const void *left, const void *right)
{
    const struct rp_bench_thread *a = left, *b = right;
    return (a->seconds < b->seconds) - (a->seconds > b->seconds);
}

void rp_bench_threads_since(struct rp_bench_threads *last, const struct rp_bench_threads *first)
{
    for (size_t i = 0; i < last->count; i++)
        for (size_t j = 0; j < first->count; j++)
            if (last->thread[i].thread == first->thread[j].thread) {
                last->thread[i].seconds -= first->thread[j].seconds;
                last->thread[i].queued_seconds -= first->thread[j].queued_seconds;
            }
    qsort(last->thread, last->count, sizeof *last->thread, more_first);
}

double rp_bench_threads_sum(const struct rp_bench_threads *threads)
{
    double seconds = 0;
    for (size_t i = 0; i < threads->count; i++)
        seconds += threads->thread[i].seconds;
    return seconds;
}
