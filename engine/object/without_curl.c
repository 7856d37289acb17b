/* SPDX-License-Identifier: Apache-2.0 */
/* without_curl.c — replaces the stores in a build without libcurl: each call is refused with this
 * reason. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "base/fail.h"
#include "object/fetch.h"
#include "object/remote.h"

static int refuse(struct rp_error *error)
{
    return rp_fail(error, -RP_E_RESOURCE,
                   "build it again with libcurl4-openssl-dev installed and -DRP_CURL=ON",
                   "URLs cannot be read: this ringpack was built without libcurl");
}

int rp_remotes_open(struct rp_remote **remotes_out, const char *const *urls, size_t count,
                    const char *directory, struct rp_error *error)
{
    *remotes_out = NULL;
    return refuse(error);
}

void rp_remotes_close(struct rp_remote *remotes, size_t count)
{
    RP_ASSERT(!remotes);
}

int rp_remote_fetch(const char *url, const char *directory, char **path_out, bool *is_new,
                    struct rp_error *error)
{
    *path_out = NULL;
    return refuse(error);
}

int rp_remote_list(const char *pattern,
                   int (*add)(void *context, const char *url, struct rp_error *error),
                   void *context, struct rp_error *error)
{
    return refuse(error);
}

int rp_fetch_text(const char *url, uint64_t bytes_max, char **text_out, size_t *bytes_out,
                  struct rp_error *error)
{
    *text_out = NULL;
    *bytes_out = 0;
    return refuse(error);
}

int rp_fetch_file(const char *url, const char *path, const char *identity,
                  const struct rp_progress *progress, struct rp_error *error)
{
    return refuse(error);
}

int rp_fetch_stats(const char *const *urls, size_t count, bool may_be_missing,
                   struct rp_remote_stat *found, struct rp_error *error)
{
    return refuse(error);
}
