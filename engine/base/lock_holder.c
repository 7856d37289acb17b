/* SPDX-License-Identifier: Apache-2.0 */
/* A line of /proc/locks is "N: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF", with "->" before
 * the kind if it waits. Command lines may hold secrets, so that only the name of a process is
 * shown. */
#include "base/lock_holder.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/escape.h"

/* 0: no known holder. */
static int find_holder(int fd)
{
    struct stat info;
    char line[256];
    int found = 0;
    FILE *file = fstat(fd, &info) == 0 ? fopen("/proc/locks", "re") : NULL;
    while (file && !found && fgets(line, sizeof line, file)) {
        int pid;
        unsigned long long inode;
        unsigned device, minor_device;
        if (sscanf(line, "%*u: FLOCK %*s %*s %d %x:%x:%llu", &pid, &device, &minor_device,
                   &inode) == 4 &&
            inode == info.st_ino && device == major(info.st_dev) &&
            minor_device == minor(info.st_dev))
            found = pid > 0 ? pid : 0;
    }
    if (file)
        fclose(file);
    return found;
}

static void read_name(int pid, char *name, size_t room)
{
    char path[32], raw[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *file = fopen(path, "re");
    if (file && !fgets(raw, sizeof raw, file))
        raw[0] = 0;
    if (file)
        fclose(file);
    raw[strcspn(raw, "\n")] = 0;
    rp_escape(name, room, raw[0] ? raw : "name unknown", "");
}

char *rp_lock_holder(int fd, char text[RP_LOCK_HOLDER_BYTES])
{
    char name[RP_ESCAPED_BYTES(20)];
    int pid = find_holder(fd);
    if (pid) {
        read_name(pid, name, sizeof name);
        snprintf(text, RP_LOCK_HOLDER_BYTES, "process %d (%s)", pid, name);
    } else {
        snprintf(text, RP_LOCK_HOLDER_BYTES, "a process that /proc/locks does not name");
    }
    return text;
}

void rp_host_name(char text[RP_HOST_BYTES])
{
    memset(text, 0, RP_HOST_BYTES);
    if (gethostname(text, RP_HOST_BYTES - 1) < 0)
        text[0] = 0;
}
