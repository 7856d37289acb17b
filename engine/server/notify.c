/* SPDX-License-Identifier: Apache-2.0 */
#include "server/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"

void rp_notify_ready(void)
{
    static const char text[] = "READY=1";
    static const struct timeval patience = {.tv_sec = 5};
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path ? strlen(path) : 0;
    if (length < 2 || length >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') /* an abstract name begins with a zero byte and has none at its end */
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    ssize_t sent;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    do
        sent = sendto(fd, text, sizeof text - 1, MSG_NOSIGNAL, (struct sockaddr *)&address, bytes);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        rp_log(RP_LOG_WARNING,
               "the service manager may wait for this engine for ever, because it cannot be told "
               "that the engine is ready: NOTIFY_SOCKET %s: %s",
               path, rp_strerror(-errno));
    close(fd);
}
