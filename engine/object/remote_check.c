/* SPDX-License-Identifier: Apache-2.0 */
/* remote_check.c — URLs that would share an index and chunks must be of one object (remote.h). */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "object/remote.h"

static int compare(const void *a, const void *b)
{
    const struct rp_remote *const *one = a, *const *other = b;
    return strcmp((*one)->id, (*other)->id);
}

static bool may_differ(const struct rp_remote *one, const struct rp_remote *other)
{
    bool is_one = strcmp(one->url, other->url) == 0 ||
                  (one->identity[0] && strcmp(one->identity, other->identity) == 0 &&
                   one->bytes == other->bytes);
    return strcmp(one->id, other->id) == 0 && !is_one;
}

int rp_remotes_check(const struct rp_remote *remotes, size_t count, struct rp_error *error)
{
    const struct rp_remote **sorted = rp_calloc(count, sizeof(struct rp_remote *));
    int code = sorted ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for %zu shards", count);
    for (size_t i = 0; sorted && i < count; i++)
        sorted[i] = &remotes[i];
    if (sorted)
        qsort(sorted, count, sizeof(struct rp_remote *), compare);
    for (size_t i = 1; i < count && code == 0; i++)
        if (may_differ(sorted[i - 1], sorted[i]))
            code = rp_fail(error, -RP_E_CONFIG,
                           "name an object once; if its query names it in a parameter `token` or "
                           "`access_token`, serve it below a path or another parameter",
                           "%s: two URLs of this name differ only in their credentials, and the "
                           "server does not show that they are one object",
                           sorted[i]->name);
    free(sorted);
    return code;
}

int rp_remote_context(const struct rp_remote *remote, int code, struct rp_error *error)
{
    if (code < 0 && remote && error && !strstr(error->message, remote->name))
        return rp_fail_context(error, code, "%s", remote->name);
    return code;
}
