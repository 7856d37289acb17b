/* SPDX-License-Identifier: Apache-2.0 */
/* curl.h — libcurl, loaded when the first URL is used: an engine of local files never loads it, and
 * a machine without it reads files as before. */
#ifndef RP_OBJECT_CURL_H
#define RP_OBJECT_CURL_H

#include "base/fail.h"

/* Keep the option numbers that old releases know as well. */
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>

#define RP_CURL_FUNCTIONS(X)                                                                       \
    X(global_init)                                                                                 \
    X(version_info)                                                                                \
    X(easy_init)                                                                                   \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_perform)                                                                                \
    X(easy_strerror)                                                                               \
    X(easy_reset)                                                                                  \
    X(easy_cleanup)                                                                                \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(multi_init)                                                                                  \
    X(multi_setopt)                                                                                \
    X(multi_add_handle)                                                                            \
    X(multi_remove_handle)                                                                         \
    X(multi_perform)                                                                               \
    X(multi_poll)                                                                                  \
    X(multi_info_read)                                                                             \
    X(multi_cleanup)

/* Each is called as curl->NAME(…) where its documentation says curl_NAME(…). */
struct rp_curl {
#define RP_CURL_POINTER(name) __typeof__(curl_##name) *name;
    RP_CURL_FUNCTIONS(RP_CURL_POINTER)
#undef RP_CURL_POINTER
};

/** Load libcurl; any thread, any number of times. NULL, with the reason, if it cannot be loaded. */
const struct rp_curl *rp_curl_load(struct rp_error *error);

#endif
