/* SPDX-License-Identifier: Apache-2.0 */
/* See guard.h. The socket listens and never accepts: another engine that finds the name taken
 * connects to it, and learns user and pid of the holder from SO_PEERCRED. */
#include "shm/guard.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "shm/peer.h"
#include "shm/socket.h"

#define RP_GUARD_TRIES 50
#define RP_GUARD_PAUSE_NS 10000000u

struct name {
    struct sockaddr_un address;
    socklen_t bytes;
};

static bool name_make(struct name *name, const char *directory, const char *run)
{
    char *canonical = realpath(directory, NULL);
    char *text = canonical
                     ? rp_asprintf("%" PRIuMAX "\n%s\n%s", (uintmax_t)geteuid(), canonical, run)
                     : NULL;
    bool is_made = text != NULL;
    if (is_made) {
        struct rp_hash128 hash = rp_hash128(text, strlen(text));
        *name = (struct name){.address.sun_family = AF_UNIX};
        int length = snprintf(name->address.sun_path + 1, sizeof name->address.sun_path - 1,
                              "ringpack-%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
        RP_ASSERT(length > 0 && (size_t)length < sizeof name->address.sun_path - 1);
        name->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    }
    free(text);
    free(canonical);
    return is_made;
}

/* A descriptor, -EADDRINUSE, or -1 when this kernel or sandbox has no such sockets. */
static int bind_name(const struct name *name)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, (const struct sockaddr *)&name->address, name->bytes) == 0 && listen(fd, 1) == 0)
        return fd;
    int code = errno == EADDRINUSE ? -EADDRINUSE : -1;
    close(fd);
    return code;
}

enum holder { HOLDER_IS_OURS, HOLDER_IS_STRANGER, HOLDER_IS_GONE };

static enum holder ask_holder(const struct name *name, pid_t *pid)
{
    enum holder holder = HOLDER_IS_OURS; /* and its backlog is full */
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return holder;
    if (connect(fd, (const struct sockaddr *)&name->address, name->bytes) != 0) {
        if (errno == ECONNREFUSED)
            holder = HOLDER_IS_GONE;
    } else {
        *pid = rp_peer_of(fd).pid;
        if (!rp_socket_peer_is_ours(fd))
            holder = HOLDER_IS_STRANGER;
    }
    close(fd);
    return holder;
}

int rp_guard_take(const char *directory, const char *run, pid_t *holder)
{
    RP_ASSERT(directory && run && holder);
    struct name name;
    *holder = 0;
    if (!name_make(&name, directory, run))
        return -1;
    for (unsigned i = 0; i < RP_GUARD_TRIES; i++) {
        int fd = bind_name(&name);
        if (fd != -EADDRINUSE)
            return fd;
        if (*holder == 0 && ask_holder(&name, holder) == HOLDER_IS_STRANGER) {
            rp_log(RP_LOG_WARNING,
                   "run `%s`: process %ld of another user holds the name that keeps a second "
                   "engine away; only the lock in %s does so now",
                   run, (long)*holder, directory);
            return -1;
        }
        rp_sleep_ns(RP_GUARD_PAUSE_NS);
    }
    return -RP_E_BUSY;
}
