/* SPDX-License-Identifier: Apache-2.0 */
/* serve.h — the watched engines by HTTP: `/metrics`, `/healthz`, `/stat.json` and a page at `/`.
 *
 * Invariants:
 *
 *   - One thread, so readers wait for each other and for a poll, never an engine for a reader: an
 *     engine is queried at most once in RP_SERVE_FRESH_NS, however many readers there are.
 *   - At most RP_SERVE_READERS_MAX connections, none older than some seconds: whoever reads or
 * sends slowly is cut off. Only GET and HEAD are answered, and no request is stored. */
#ifndef RP_TOOLS_METRICS_SERVE_H
#define RP_TOOLS_METRICS_SERVE_H

#include <netinet/in.h>

#include "watch/watch.h"

#define RP_SERVE_READERS_MAX 64u
#define RP_SERVE_FRESH_NS UINT64_C(900000000)     /* a scrape each second gets a new answer */
#define RP_SERVE_PATIENCE_NS UINT64_C(1000000000) /* with all engines together */

/* Where to listen. */
struct rp_serve_place {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    socklen_t bytes;
    bool is_loopback; /* only this machine can connect */
};
/** Understand `HOST:PORT`, `[HOST]:PORT` or `PORT`; HOST is `localhost` or an address. */
RP_MUST_CHECK int rp_serve_parse(struct rp_serve_place *place, const char *text,
                                 struct rp_error *error);
/** The address as it is written in a URL. Returns `text`. */
char *rp_serve_place_text(const struct rp_serve_place *place, char text[80]);

/** Listen. Returns a descriptor, and the port in *place. */
RP_MUST_CHECK int rp_serve_listen(struct rp_serve_place *place, struct rp_error *error);

/** Answer until the process is interrupted. Takes the descriptor. */
RP_MUST_CHECK int rp_serve_run(struct rp_watch *watch, const struct rp_serve_place *place, int fd,
                               struct rp_error *error);

#endif
