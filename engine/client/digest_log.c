/* SPDX-License-Identifier: Apache-2.0 */
/* digest_log.c — digests of the rows that this trainer was given, written to a file every
 * digest_steps steps (engine/plan/STREAM.md section 7; base/chain.h).
 *
 * An attach also makes an entry. It has the last hashes of the files of the other numbers of ranks
 * in the same folder, so a reader can order deliveries of two jobs without a clock: the attach came
 * after those entries.
 *
 * An interval begins at the row of the first batch and ends after the step that takes the number of
 * rows since row 0 past a multiple of digest_steps steps. So the intervals of all ranks, and of
 * runs with other numbers of ranks, end at the same rows, and their content digests add up.
 *
 * Invariant: an entry covers batches that follow each other. It is written before the batch after
 * them is given to the trainer, and lost if the trainer is killed before. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/chain.h"
#include "base/mem.h"
#include "base/text.h"
#include "client/core.h"

#define SEEN_MAX 256u   /* files */
#define SEEN_DIGITS 16u /* kept digits of an entry's hash */
#define SEEN_BYTES (SEEN_MAX * (SEEN_DIGITS + 1))

static bool is_kept(const struct rp_client *client)
{
    return client->digest.path && client->options.replica == 0;
}

static int append(const struct rp_client *client, const char *members, struct rp_error *error)
{
    return rp_chain_append(client->digest.path, members, false, error);
}

int rp_client_digest_check(const struct rp_client *client, struct rp_error *error)
{
    return is_kept(client) ? rp_chain_check(client->digest.path, error) : 0;
}

/* ---- files of other jobs in the folder ------------------------------------------------------- */

/* "-of-00008.jsonl" of "rank-00003-of-00008.jsonl"; "" of another name. */
static const char *world_part(const char *name)
{
    const char *part = strncmp(name, "rank-", 5) == 0 ? strstr(name, "-of-") : NULL;
    return part ? part : "";
}

static bool is_of_other_job(const char *name, const char *own)
{
    return strncmp(name, "rank-", 5) == 0 && rp_text_has_suffix(name, ".jsonl") &&
           strcmp(name, own) != 0 &&
           (!*world_part(own) || strcmp(world_part(name), world_part(own)) != 0);
}

/* The last hashes of these files, shortened, with spaces between them. A file that cannot be read
 * is left out: then the order of its entries is not known, and audit says so. */
static void see_others(const char *path, char seen[SEEN_BYTES])
{
    char hash[RP_CHAIN_HASH_BYTES];
    const char *slash = strrchr(path, '/'), *own = slash ? slash + 1 : path;
    char *folder = slash ? rp_asprintf("%.*s/", (int)(slash - path), path) : rp_asprintf("./");
    DIR *directory = folder ? opendir(folder) : NULL;
    size_t bytes = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        if (bytes + SEEN_DIGITS + 1 >= SEEN_BYTES || !is_of_other_job(entry->d_name, own))
            continue;
        char *other = rp_asprintf("%s%s", folder, entry->d_name);
        if (other && rp_chain_last(other, hash, NULL) == 0)
            bytes += (size_t)snprintf(seen + bytes, SEEN_BYTES - bytes, "%s%.*s", bytes ? " " : "",
                                      (int)SEEN_DIGITS, hash);
        free(other);
    }
    if (directory)
        closedir(directory);
    free(folder);
}

/* ---- entries --------------------------------------------------------------------------------- */

int rp_client_digest_begin(struct rp_client *client, struct rp_error *error)
{
    char members[512 + SEEN_BYTES], stream[RP_HASH_HEX_BYTES], seen[SEEN_BYTES] = "";
    if (!is_kept(client))
        return 0;
    see_others(client->digest.path, seen);
    snprintf(members, sizeof members,
             "\"event\":\"attached\",\"run\":\"%s\",\"rank\":%" PRIu32 ",\"world\":%" PRIu32
             ",\"row\":%" PRIu64 ",\"stream\":\"%s\",\"steps\":%" PRIu64 ",\"seen\":\"%s\"",
             client->run, client->options.rank, client->geometry.world, client->attach_row,
             rp_hash128_hex(rp_record_hash(&client->contract.stream), stream),
             client->options.digest_steps, seen);
    return append(client, members, error);
}

/* Write the rows added since the last entry. A failure is counted: it must not stop a trainer. */
static void write_interval(struct rp_client *client)
{
    struct rp_digest_log *log = &client->digest;
    struct rp_hash128 plan;
    char members[512], content_hex[RP_HASH_HEX_BYTES], plan_hex[RP_HASH_HEX_BYTES] = "";
    if (!log->is_begun)
        return;
    if (rp_client_token_digest(rp_client_newest(client)->token, rp_client_newest(client)->bytes,
                               &plan))
        rp_hash128_hex(plan, plan_hex);
    struct rp_hash128 content = {log->sum[0], log->sum[1]};
    snprintf(members, sizeof members,
             "\"event\":\"digest\",\"rank\":%" PRIu32 ",\"world\":%" PRIu32
             ",\"first_row\":%" PRIu64 ",\"row\":%" PRIu64 ",\"rows\":%" PRIu64
             ",\"tokens\":%" PRIu64 ",\"plan_digest\":\"%s\",\"content_digest\":\"%s\"",
             client->options.rank, client->geometry.world, log->first_row, client->next_row,
             log->rows, log->tokens, plan_hex, rp_hash128_hex(content, content_hex));
    client->counts.digest_failures += append(client, members, NULL) < 0;
    *log = (struct rp_digest_log){.path = log->path};
}

void rp_client_digest_add(struct rp_client *client, const struct rp_batch *batch)
{
    struct rp_digest_log *log = &client->digest;
    const struct rp_geometry *g = &client->geometry;
    uint64_t end = client->attach_row, rows = (uint64_t)batch->rows * g->world, every;
    if (!is_kept(client) || client->next_row <= end - rows)
        return; /* the batch is padding after the stream, of every rank */
    if (!rp_mul_u64(client->options.digest_steps, (uint64_t)g->rows * g->world * g->micro_batches,
                    &every))
        every = UINT64_MAX;
    if (log->is_begun && log->end_row != end - rows) /* the monitor is off, or counts gaps */
        *log = (struct rp_digest_log){.path = log->path};
    if (!log->is_begun)
        log->first_row = end - rows;
    log->is_begun = true;
    log->end_row = end;
    rp_batch_digest(g, batch, log->sum);
    log->rows += batch->rows_real;
    log->tokens += batch->tokens_real;
    if (end / every != (end - rows) / every)
        write_interval(client);
}

void rp_client_digest_end(struct rp_client *client)
{
    if (is_kept(client))
        write_interval(client);
}
