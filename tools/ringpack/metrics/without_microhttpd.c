/* SPDX-License-Identifier: Apache-2.0 */
/* without_microhttpd.c — in the place of serve.c where the program was built without
 * libmicrohttpd. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <unistd.h>

#include "metrics/serve.h"

int rp_serve_run(struct rp_watch *watch, const struct rp_serve_place *place, int fd,
                 struct rp_error *error)
{
    close(fd);
    return rp_fail(error, -RP_E_RESOURCE,
                   "build it with libmicrohttpd-dev, or use `ringpack metrics --once`",
                   "cannot serve metrics: ringpack was built without libmicrohttpd");
}
