/* SPDX-License-Identifier: Apache-2.0 */
#include "workers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line of stat begins with the number, the name in brackets, and the state: 7 (plan) S */
static bool is_worker(const char *stat)
{
    static const char *const names[] = {"(plan)", "(read)", "(pack)"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(stat, names[i]))
            return true;
    return false;
}

static bool read_stat(int fd, char *line, size_t capacity)
{
    ssize_t bytes = pread(fd, line, capacity - 1, 0);
    line[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0;
}

bool workers_find(struct workers *workers, pid_t engine)
{
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/%d/task", (int)engine);
    DIR *threads = opendir(path);
    *workers = (struct workers){.count = 0};
    if (!threads)
        return false;
    for (struct dirent *entry; (entry = readdir(threads)) && workers->count < WORKERS_MAX;) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", (int)engine, entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (read_stat(fd, line, sizeof line) && is_worker(line))
            workers->stats[workers->count++] = fd;
        else
            close(fd);
    }
    closedir(threads);
    return workers->count > 0 && workers->count < WORKERS_MAX;
}

int workers_work(const struct workers *workers)
{
    char line[128];
    for (uint32_t i = 0; i < workers->count; i++) {
        if (!read_stat(workers->stats[i], line, sizeof line))
            return -1;
        const char *state = strstr(line, ") ");
        if (!state || state[2] != 'S')
            return 1;
    }
    return 0;
}
