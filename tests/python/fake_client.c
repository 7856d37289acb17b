/* SPDX-License-Identifier: Apache-2.0 */
/* fake_client.c — the client library's contract without an engine, for tests of the Python package.
 *
 * Batch k of a "ring" of SLOTS slots holds tokens k * 1000 + place. A slot that is given back is
 * filled with POISON at once, so a view that outlives its lease is seen. The slots are read-only
 * but while they are written. Leases come back in any order; each must come back once (fake_faults
 * counts violations). The run's name chooses the behaviour: "end:N" ends after N batches, "fail:N"
 * fails at batch N. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ringpack/client.h"

enum {
    ROWS = 2,
    LENGTH = 8,
    DOCUMENTS = 3,
    SLOTS = 4,
    SLOT_BYTES = 4096,
    STATE_BYTES = 256,
    TOKEN_BYTES = 104
};
#define POISON 0x5a

struct rp_client {
    struct rp_geometry geometry;
    unsigned char *slots;
    uint64_t next, end, fail;
    uint64_t held[SLOTS]; /* number + 1 of the batch on lease in the slot, 0 = free */
    int detached, closed, leases, gone;
    struct rp_client *before_it; /* that is gone as well */
    char state[STATE_BYTES], before[STATE_BYTES];
};

static uint64_t faults, released, living;
static struct rp_client *last_gone; /* they are kept: who still calls one is counted */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inside; /* threads in rp_client_next: one at most */

RP_API uint64_t fake_faults(void);
RP_API uint64_t fake_released(void);
RP_API uint64_t fake_living(void);

uint64_t fake_faults(void)
{
    return faults;
}

uint64_t fake_released(void)
{
    return released;
}

uint64_t fake_living(void)
{
    return living;
}

static void lay_out(struct rp_geometry *g)
{
    static const uint32_t dtypes[] = {RP_DTYPE_RECORD, RP_DTYPE_I32,  RP_DTYPE_I32,
                                      RP_DTYPE_I64,    RP_DTYPE_NONE, RP_DTYPE_U16,
                                      RP_DTYPE_F32,    RP_DTYPE_I32,  RP_DTYPE_RECORD};
    static const uint64_t bytes[] = {ROWS * sizeof(struct rp_row_info),
                                     ROWS * DOCUMENTS * 4,
                                     ROWS * LENGTH * 4,
                                     ROWS * LENGTH * 8,
                                     0,
                                     ROWS * LENGTH * 2,
                                     ROWS * LENGTH * 4,
                                     (ROWS * (DOCUMENTS + 1) + 1) * 4,
                                     ROWS * DOCUMENTS * sizeof(struct rp_provenance)};
    uint64_t offset = 64;
    for (int i = 0; i < RP_SECTION_COUNT; i++) {
        g->sections[i].dtype = dtypes[i];
        g->sections[i].bytes = bytes[i];
        g->sections[i].offset = bytes[i] ? offset : 0;
        offset += (bytes[i] + 63) / 64 * 64;
    }
}

static void set_state(struct rp_client *client)
{
    uint32_t length = TOKEN_BYTES;
    memcpy(client->before, client->state, STATE_BYTES);
    memcpy(client->state, "RPSTATE", 8);
    memcpy(client->state + 12, &length, 4);
    memcpy(client->state + 16, &client->next, 8);
    memset(client->state + 24, 0x77, 16);
}

int rp_client_attach(struct rp_client **out, const struct rp_client_options *options,
                     struct rp_error *error)
{
    if (options->struct_size != sizeof *options) {
        error->code = -RP_E_USAGE;
        snprintf(error->message, sizeof error->message, "struct_size");
        return error->code;
    }
    if (options->world > 1 && options->world != 4) {
        error->code = -RP_E_MISMATCH;
        snprintf(error->message, sizeof error->message, "dp_world_size: expected 4, found %u",
                 options->world);
        snprintf(error->hint, sizeof error->hint, "start as many ranks as the engine serves");
        return error->code;
    }
    struct rp_client *client = calloc(1, sizeof *client);
    client->geometry = (struct rp_geometry){.struct_size = sizeof client->geometry,
                                            .rows = ROWS,
                                            .seq_len = LENGTH,
                                            .max_docs_per_row = DOCUMENTS,
                                            .world = 1,
                                            .rank = options->rank,
                                            .micro_batches = 1,
                                            .slots = SLOTS,
                                            .state_bytes = STATE_BYTES,
                                            .slot_bytes = SLOT_BYTES};
    lay_out(&client->geometry);
    client->end = client->fail = UINT64_MAX;
    sscanf(options->run, "end:%lu", &client->end);
    sscanf(options->run, "fail:%lu", &client->fail);
    if (options->state_bytes >= 24)
        memcpy(&client->next, (const char *)options->state + 16, 8);
    client->slots = mmap(NULL, SLOTS * SLOT_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    set_state(client);
    pthread_mutex_lock(&lock);
    living++;
    pthread_mutex_unlock(&lock);
    *out = client;
    return 0;
}

const struct rp_geometry *rp_client_geometry(const struct rp_client *client)
{
    return &client->geometry;
}

static void fill(unsigned char *slot, const struct rp_geometry *g, uint64_t k)
{
    struct rp_row_info *rows = (void *)(slot + g->sections[RP_SECTION_ROWS].offset);
    int32_t *tokens = (void *)(slot + g->sections[RP_SECTION_INPUT_IDS].offset);
    int64_t *labels = (void *)(slot + g->sections[RP_SECTION_LABELS].offset);
    struct rp_provenance *provenance = (void *)(slot + g->sections[RP_SECTION_PROVENANCE].offset);
    for (uint32_t r = 0; r < ROWS; r++)
        rows[r] = (struct rp_row_info){.row = k * ROWS + r, .fragments = 1, .tokens = LENGTH};
    for (uint32_t i = 0; i < ROWS * LENGTH; i++) {
        tokens[i] = (int32_t)(k * 1000 + i);
        labels[i] = tokens[i] + 1;
    }
    provenance[DOCUMENTS] = (struct rp_provenance){
        .document = k, .offset = 7, .source = 3, .length = LENGTH};
}

int rp_client_take(struct rp_client *client, struct rp_batch *batch, struct rp_error *error)
{
    int others = __atomic_fetch_add(&inside, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_lock(&lock);
    faults += (uint64_t)others;
    uint64_t k = client->next, place = k % SLOTS;
    int result = RP_NEXT_BATCH;
    if (k == client->end) {
        result = RP_NEXT_END;
    } else if (client->closed || batch->struct_size != sizeof *batch) {
        result = error->code = -RP_E_USAGE;
        snprintf(error->message, sizeof error->message, "struct_size");
    } else if (k == client->fail) {
        result = error->code = -RP_E_CORRUPT;
        snprintf(error->message, sizeof error->message, "block 7 of a.bin: the content changed");
    } else if (client->held[place]) {
        result = error->code = -RP_E_USAGE;
        snprintf(error->message, sizeof error->message, "all slots are on lease");
    } else {
        unsigned char *slot = client->slots + place * SLOT_BYTES;
        mprotect(slot, SLOT_BYTES, PROT_READ | PROT_WRITE);
        memset(slot, 0, SLOT_BYTES);
        fill(slot, &client->geometry, k);
        mprotect(slot, SLOT_BYTES, PROT_READ);
        *batch = (struct rp_batch){.struct_size = sizeof *batch,
                                   .number = k,
                                   .first_row = k * ROWS,
                                   .next_row = (k + 1) * ROWS,
                                   .rows = ROWS,
                                   .seq_len = LENGTH,
                                   .rows_real = ROWS,
                                   .tokens_real = ROWS * LENGTH,
                                   .max_seqlen = 8,
                                   .segments = 2,
                                   .step = k,
                                   .micro_batches = 1,
                                   .lease = 1};
        for (int i = 0; i < RP_SECTION_COUNT; i++)
            batch->sections[i] = client->geometry.sections[i].offset
                                     ? slot + client->geometry.sections[i].offset
                                     : NULL;
        client->held[place] = k + 1;
        client->leases++;
        client->next++;
        set_state(client);
    }
    pthread_mutex_unlock(&lock);
    __atomic_fetch_sub(&inside, 1, __ATOMIC_ACQ_REL);
    return result;
}

/* A batch is always ready. */
int rp_client_next(struct rp_client *client, int64_t timeout_ns, struct rp_batch *batch,
                   struct rp_error *error)
{
    (void)timeout_ns;
    return rp_client_take(client, batch, error);
}

static void drop(struct rp_client *client)
{
    munmap(client->slots, SLOTS * SLOT_BYTES);
    client->gone = 1;
    client->before_it = last_gone;
    last_gone = client;
    living--;
}

int rp_client_release(struct rp_client *client, const struct rp_batch *batch)
{
    pthread_mutex_lock(&lock);
    uint64_t place = batch->number % SLOTS;
    int result = 0;
    faults += (uint64_t)(client->gone && client->detached); /* its memory would be freed */
    if (client->gone || client->held[place] != batch->number + 1) {
        result = -RP_E_USAGE;
    } else {
        unsigned char *slot = client->slots + place * SLOT_BYTES;
        mprotect(slot, SLOT_BYTES, PROT_READ | PROT_WRITE);
        memset(slot, POISON, SLOT_BYTES);
        mprotect(slot, SLOT_BYTES, PROT_READ);
        client->held[place] = 0;
        released++;
        if (--client->leases == 0 && (client->detached || client->closed))
            drop(client);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int rp_client_step(struct rp_client *client, const struct rp_batch *done, struct rp_batch *batch,
                   struct rp_error *error)
{
    int code = rp_client_release(client, done);
    return code < 0 ? code : rp_client_take(client, batch, error);
}

int rp_client_holds(const struct rp_client *client, const struct rp_batch *batch)
{
    pthread_mutex_lock(&lock);
    int held = client->held[batch->number % SLOTS] == batch->number + 1;
    pthread_mutex_unlock(&lock);
    return held;
}

static size_t copy_token(const char *state, void *buffer, size_t capacity)
{
    pthread_mutex_lock(&lock);
    if (capacity >= TOKEN_BYTES)
        memcpy(buffer, state, TOKEN_BYTES);
    pthread_mutex_unlock(&lock);
    return TOKEN_BYTES;
}

size_t rp_client_state(const struct rp_client *client, void *buffer, size_t capacity)
{
    return copy_token(client->state, buffer, capacity);
}

size_t rp_client_state_before(const struct rp_client *client, void *buffer, size_t capacity)
{
    return copy_token(client->before, buffer, capacity);
}

/* Its tokens have only zeros where the sources of one of version 1 are counted. */
int rp_client_check_state(const void *state, size_t bytes, struct rp_error *error)
{
    (void)state;
    (void)bytes;
    (void)error;
    return 1;
}

size_t rp_client_state_after(const struct rp_client *client, const struct rp_batch *batch,
                             void *buffer, size_t capacity)
{
    if (batch->number + 32 < client->next)
        return 0;
    uint64_t next = batch->number + 1;
    if (capacity >= TOKEN_BYTES) {
        memcpy(buffer, client->state, TOKEN_BYTES);
        memcpy((char *)buffer + 16, &next, 8);
    }
    return TOKEN_BYTES;
}

void rp_client_identity(const struct rp_client *client, uint64_t identity[2])
{
    (void)client;
    identity[0] = 7;
    identity[1] = 0;
}

size_t rp_client_contract(const struct rp_client *client, char *buffer, size_t capacity)
{
    static const char contract[] = "seed=7\n\nbatch_size=2\ndp_world_size=1\n"
                                   "global_batch_size=2\npad_id=0\n";
    (void)client;
    if (buffer && capacity >= sizeof contract - 1)
        memcpy(buffer, contract, sizeof contract - 1);
    return sizeof contract - 1;
}

int rp_contract_agree(const char *name, const char *text, size_t bytes, const char *other_name,
                      const char *other_text, size_t other_bytes, struct rp_error *error)
{
    (void)name, (void)other_name, (void)error;
    return bytes == other_bytes && memcmp(text, other_text, bytes) == 0 ? 0 : -RP_E_MISMATCH;
}

int rp_client_stage_ended(const struct rp_client *client)
{
    (void)client;
    return 0;
}

uint64_t rp_client_next_row(const struct rp_client *client)
{
    return client->next * ROWS;
}

uint64_t rp_client_step_row(const struct rp_client *client)
{
    return client->next * ROWS;
}

int rp_client_counts(const struct rp_client *client, struct rp_client_counts *counts)
{
    if (counts->struct_size != sizeof *counts)
        return -RP_E_USAGE;
    *counts = (struct rp_client_counts){.struct_size = sizeof *counts, .batches = client->next};
    return 0;
}

void rp_client_detach(struct rp_client *client)
{
    pthread_mutex_lock(&lock);
    client->detached = 1;
    if (client->leases == 0 && !client->gone)
        drop(client);
    pthread_mutex_unlock(&lock);
}

void rp_client_close(struct rp_client *client)
{
    pthread_mutex_lock(&lock);
    client->closed = 1;
    if (client->leases == 0 && !client->gone)
        drop(client);
    pthread_mutex_unlock(&lock);
}

void rp_batch_digest(const struct rp_geometry *geometry, const struct rp_batch *batch,
                     uint64_t sum[2])
{
    sum[0] += batch->number + geometry->rows;
    sum[1] += 1;
}

int rp_batch_labelled_digest(const struct rp_geometry *geometry, const struct rp_batch *batch,
                             uint64_t sum[2], struct rp_error *error)
{
    (void)error;
    sum[0] += batch->number + 2 * geometry->rows;
    sum[1] += 1;
    return 0;
}

static int answer(const char *run, const char *text, char **text_out, struct rp_error *error)
{
    if (!strcmp(run, "nobody")) {
        error->code = -RP_E_GONE;
        snprintf(error->message, sizeof error->message, "no engine of run `nobody`");
        return error->code;
    }
    *text_out = strdup(text);
    return 0;
}

int rp_run_stat(const char *run_dir, const char *run, char **json_out, struct rp_error *error)
{
    (void)run_dir;
    return answer(run, "{\"run\": \"demo\"}", json_out, error);
}

int rp_run_locate(const char *run_dir, const char *run, const struct rp_provenance *documents,
                  size_t count, char **text_out, struct rp_error *error)
{
    (void)run_dir, (void)documents, (void)count;
    return answer(run, "7 /corpus/a\\nb\\\\n\n", text_out, error);
}

int rp_run_checkpoint(const char *run_dir, const char *run, char **path_out, struct rp_error *error)
{
    (void)run_dir;
    return answer(run, "/checkpoints/1", path_out, error);
}

void rp_text_free(char *text)
{
    free(text);
}

/* The version of the package that loads it, or of another library: FAKE_VERSION of the environment.
 */
const char *rp_version(void)
{
    const char *wanted = getenv("FAKE_VERSION");
    return wanted ? wanted : PACKAGE_SERIES ".0";
}
