/* SPDX-License-Identifier: Apache-2.0 */
/* place.c — the address on which metrics are served. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "metrics/serve.h"

#define LOOPBACK "127.0.0.1"

/* Split at the last colon; without one all of it is the port. */
static bool split(const char *text, char host[64], uint64_t *port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (colon && length > 1 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if ((colon && length == 0) || length >= 64)
        return false;
    snprintf(host, 64, "%.*s", (int)length, text);
    if (!colon || !strcmp(host, "localhost"))
        snprintf(host, 64, LOOPBACK);
    return rp_text_u64(colon ? colon + 1 : text, port) && *port <= UINT16_MAX;
}

int rp_serve_parse(struct rp_serve_place *place, const char *text, struct rp_error *error)
{
    char host[64];
    uint64_t port;
    *place = (struct rp_serve_place){.bytes = 0};
    if (!split(text, host, &port))
        return rp_fail(error, -RP_E_USAGE, "`ringpack help metrics` has examples",
                       "--listen `%.100s`: expected HOST:PORT or a port up to 65535", text);
    if (inet_pton(AF_INET, host, &place->address.v4.sin_addr) == 1) {
        place->address.v4.sin_family = AF_INET;
        place->address.v4.sin_port = htons((uint16_t)port);
        place->bytes = sizeof place->address.v4;
        place->is_loopback = ntohl(place->address.v4.sin_addr.s_addr) >> 24 == 127;
        return 0;
    }
    if (inet_pton(AF_INET6, host, &place->address.v6.sin6_addr) == 1) {
        place->address.v6.sin6_family = AF_INET6;
        place->address.v6.sin6_port = htons((uint16_t)port);
        place->bytes = sizeof place->address.v6;
        place->is_loopback = IN6_IS_ADDR_LOOPBACK(&place->address.v6.sin6_addr);
        return 0;
    }
    return rp_fail(error, -RP_E_USAGE,
                   "give an address of this machine, such as 127.0.0.1 or [::1]",
                   "--listen `%.100s`: `%s` is no address", text, host);
}

char *rp_serve_place_text(const struct rp_serve_place *place, char text[80])
{
    char host[INET6_ADDRSTRLEN];
    bool is_v4 = place->address.any.sa_family == AF_INET;
    const void *from = is_v4 ? (const void *)&place->address.v4.sin_addr
                             : (const void *)&place->address.v6.sin6_addr;
    uint16_t port = is_v4 ? place->address.v4.sin_port : place->address.v6.sin6_port;
    inet_ntop(place->address.any.sa_family, from, host, sizeof host);
    snprintf(text, 80, is_v4 ? "%s:%u" : "[%s]:%u", host, (unsigned)ntohs(port));
    return text;
}

int rp_serve_listen(struct rp_serve_place *place, struct rp_error *error)
{
    char text[80];
    int yes = 1;
    int fd = socket(place->address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* only over connections that have ended, not with another listener */
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd, &place->address.any, place->bytes) == 0 && listen(fd, 64) == 0 &&
        getsockname(fd, &place->address.any, &place->bytes) == 0)
        return fd;
    int code = -errno;
    if (fd >= 0)
        close(fd);
    rp_serve_place_text(place, text);
    if (code == -EADDRINUSE)
        return rp_fail(error, code, "choose another port with --listen; port 0 is any free one",
                       "%s: another process listens there", text);
    return rp_fail(error, code, "give an address and a port that you may use with --listen",
                   "%s: %s", text, strerror(-code));
}
