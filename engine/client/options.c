/* SPDX-License-Identifier: Apache-2.0 */
/* options.c — the options of an attach: checked as they enter, and copied, because the caller may
 * free them. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "client/core.h"
#include "client/sized.h"

#define RP_CONNECT_TIMEOUT_NS (10ull * RP_SECOND_NS)
#define RP_RESTART_TIMEOUT_NS (60ull * RP_SECOND_NS)
#define RP_OPTIONS_REQUIRED RP_SIZE_WITH(rp_client_options, rank)

static int check(const struct rp_client_options *options, struct rp_error *error)
{
    if (options->state_bytes > RP_STATE_BYTES_MAX)
        return rp_fail(error, -RP_E_USAGE, NULL, "a state token of %zu bytes is longer than any",
                       options->state_bytes);
    if (options->monitor > RP_MONITOR_OFF)
        return rp_fail(error, -RP_E_USAGE, "use a value of enum rp_monitor", "monitor is %" PRIu32,
                       options->monitor);
    if (options->reserved != 0)
        return rp_fail(error, -RP_E_USAGE, "set the whole struct to 0 before its fields are set",
                       "struct rp_client_options: reserved: expected 0, found %" PRIu32,
                       options->reserved);
    if (options->digest_log && strstr(options->digest_log, "://"))
        return rp_fail(error, -RP_E_USAGE, "give the path of a file on a disk of this machine",
                       "digest_log: expected a path, found a URL");
    if (options->digest_log && options->digest_steps == 0)
        return rp_fail(error, -RP_E_USAGE, "100 steps, for instance",
                       "digest_log without digest_steps");
    if (!options->state != !options->state_bytes)
        return rp_fail(error, -RP_E_USAGE, "give both, or neither to begin at the seat's position",
                       "state without state_bytes, or state_bytes (%zu) without state",
                       options->state_bytes);
    if (options->expected_bytes > RP_CONTRACT_BYTES_MAX ||
        !options->expected != !options->expected_bytes)
        return rp_fail(error, -RP_E_USAGE, "give the text of a contract and its length, or neither",
                       "expected: a text of 1 to %u bytes, found %zu bytes", RP_CONTRACT_BYTES_MAX,
                       options->expected_bytes);
    return 0;
}

/* The client gets own copies of the bytes that the options point to. */
static int copy_bytes(struct rp_client *client, const struct rp_client_options *options,
                      struct rp_error *error)
{
    client->run = rp_asprintf("%s", options->run ? options->run : "default");
    client->run_dir = options->run_dir ? rp_asprintf("%s", options->run_dir) : NULL;
    client->digest.path = options->digest_log ? rp_asprintf("%s", options->digest_log) : NULL;
    client->expected = malloc(options->expected_bytes + 1);
    if (!client->run || !client->expected || (options->run_dir && !client->run_dir) ||
        (options->digest_log && !client->digest.path))
        return rp_fail(error, -ENOMEM, NULL, "attaching: out of memory");
    if (options->expected)
        memcpy(client->expected, options->expected, options->expected_bytes);
    int code = rp_client_reserve_tokens(client, options->state_bytes + 1, error);
    if (code == 0 && options->state)
        rp_client_keep_token(client, options->state, options->state_bytes, 0, 0);
    return code;
}

int rp_client_copy_options(struct rp_client *client, const struct rp_client_options *given,
                           struct rp_error *error)
{
    struct rp_client_options *options = &client->options;
    const char *name = "rp_client_options";
    int code = rp_sized_check(given->struct_size, RP_OPTIONS_REQUIRED, name, error);
    if (code < 0)
        return code;
    code = rp_sized_read(options, sizeof *options, given, name, error);
    if (code < 0)
        return code;
    code = check(options, error);
    if (code < 0)
        return code;
    if (options->connect_timeout_ns == 0)
        options->connect_timeout_ns = RP_CONNECT_TIMEOUT_NS;
    if (options->restart_timeout_ns == 0)
        options->restart_timeout_ns = RP_RESTART_TIMEOUT_NS;
    return copy_bytes(client, options, error);
}
