/* SPDX-License-Identifier: Apache-2.0 */
/* microhttpd.h — libmicrohttpd, loaded only when `ringpack metrics` serves. */
#ifndef RP_TOOLS_MICROHTTPD_H
#define RP_TOOLS_MICROHTTPD_H

#include <microhttpd.h>

#include "base/fail.h"

#define RP_MICROHTTPD_FUNCTIONS(X)                                                                 \
    X(start_daemon)                                                                                \
    X(stop_daemon)                                                                                 \
    X(run)                                                                                         \
    X(get_timeout)                                                                                 \
    X(get_daemon_info)                                                                             \
    X(get_connection_info)                                                                         \
    X(lookup_connection_value)                                                                     \
    X(create_response_from_buffer)                                                                 \
    X(add_response_header)                                                                         \
    X(queue_response)                                                                              \
    X(destroy_response)

/* Each is called as httpd->NAME(…) where its documentation says MHD_NAME(…). */
struct rp_microhttpd {
#define RP_MICROHTTPD_POINTER(name) __typeof__(MHD_##name) *name;
    RP_MICROHTTPD_FUNCTIONS(RP_MICROHTTPD_POINTER)
#undef RP_MICROHTTPD_POINTER
};

/** Load it. NULL, with the reason, if it cannot be loaded. One thread. */
const struct rp_microhttpd *rp_microhttpd_load(struct rp_error *error);

#endif
