/* SPDX-License-Identifier: Apache-2.0 */
/* live_engine.h — a whole engine on a thread, over a small corpus that is read for ever, and the
 * first rows of its stream as two well-behaved trainers have seen them. */
#ifndef RP_TESTS_LIVE_ENGINE_H
#define RP_TESTS_LIVE_ENGINE_H

#include <pthread.h>
#include <signal.h>

#include "server/server.h"
#include "fuzz.h"
#include "ringpack/client.h"
#include "shm/ring.h"

#define LIVE_ROWS 64u /* that are known */
#define LIVE_BATCH 2u
#define LIVE_WORLD 2u
#define LIVE_SEQ_LEN 16u

static struct rp_config live_config;
static uint64_t live_row_hashes[LIVE_ROWS];
static uint8_t live_token[1u << 12]; /* a state token of the stream, and the row it stands at */
static size_t live_token_bytes;
static uint64_t live_token_row;
static char live_contract[1024]; /* the engine's */
static size_t live_contract_bytes;
static uint8_t live_bytes[8192]; /* the message of live_message */

FUZZ void *live_run(void *unused)
{
    struct rp_engine_options options = {.config = &live_config, .ready_fd = -1, .lifeline_fd = -1};
    struct rp_error error = {0};
    int code = rp_engine_run(&options, &error);
    fprintf(stderr, "the engine ended: %d: %s\n", code, error.message);
    abort();
    return unused;
}

FUZZ void live_configure(void)
{
    uint16_t tokens[480];
    char path[64], text[512];
    for (unsigned i = 0; i < RP_ARRAY_COUNT(tokens); i++)
        tokens[i] = (uint16_t)(i * i % 11 == 3 ? 9 : 100 + i);
    snprintf(path, sizeof path, "%s/t.bin", fuzz_scratch);
    fuzz_put(path, tokens, sizeof tokens);
    snprintf(path, sizeof path, "%s/c.yaml", fuzz_scratch);
    snprintf(text, sizeof text,
             "sources: [{path: t.bin, format: raw, dtype: u16, eos: 9}]\nrun: fuzz\n"
             "run_dir: %s\nnum_epochs: endless\nprefetch_bytes: 64k\nio: pread\n"
             "seq_len: %u\nbatch_size: %u\ndp_world_size: %u\n",
             fuzz_scratch, LIVE_SEQ_LEN, LIVE_BATCH, LIVE_WORLD);
    fuzz_put(path, text, strlen(text));
    rp_config_init(&live_config);
    FUZZ_REQUIRE(rp_config_read(&live_config, path, NULL) == 0);
    FUZZ_REQUIRE(rp_config_finish(&live_config, NULL) == 0);
}

FUZZ uint64_t live_row_hash(const struct rp_geometry *g, const void *input_ids, uint32_t row)
{
    uint64_t bytes = g->sections[RP_SECTION_INPUT_IDS].bytes / g->rows;
    return rp_hash64((const uint8_t *)input_ids + row * bytes, bytes);
}

FUZZ void live_take(struct rp_client *client)
{
    struct rp_batch batch = {.struct_size = sizeof batch};
    FUZZ_REQUIRE(rp_client_next(client, -1, &batch, NULL) == RP_NEXT_BATCH);
    for (uint32_t i = 0; i < LIVE_BATCH; i++)
        live_row_hashes[batch.first_row + i] = live_row_hash(
            rp_client_geometry(client), batch.sections[RP_SECTION_INPUT_IDS], i);
    FUZZ_REQUIRE(rp_client_release(client, &batch) == 0);
}

/* Read the first rows with all ranks in step. */
FUZZ void live_learn(void)
{
    struct rp_client *clients[LIVE_WORLD];
    for (uint32_t r = 0; r < LIVE_WORLD; r++) {
        struct rp_client_options options = {
            .struct_size = sizeof options, .run = "fuzz", .run_dir = fuzz_scratch, .rank = r};
        FUZZ_REQUIRE(rp_client_attach(&clients[r], &options, NULL) == 0);
    }
    for (unsigned k = 0; k < LIVE_ROWS / (LIVE_BATCH * LIVE_WORLD); k++) {
        for (uint32_t r = 0; r < LIVE_WORLD; r++)
            live_take(clients[r]);
        if (k == 4) {
            live_token_bytes = rp_client_state(clients[0], live_token, sizeof live_token);
            live_token_row = rp_client_next_row(clients[0]);
        }
    }
    FUZZ_REQUIRE(live_token_bytes > 0 && live_token_bytes <= sizeof live_token);
    live_contract_bytes = rp_client_contract(clients[0], live_contract, sizeof live_contract);
    FUZZ_REQUIRE(live_contract_bytes > 0 && live_contract_bytes <= sizeof live_contract);
    for (uint32_t r = 0; r < LIVE_WORLD; r++)
        rp_client_detach(clients[r]);
}

FUZZ void live_start(void)
{
    pthread_t thread;
    fuzz_enter_scratch();
    live_configure();
    rp_log_set_level(RP_LOG_ERROR);
    signal(SIGPIPE, SIG_IGN);
    FUZZ_REQUIRE(pthread_create(&thread, NULL, live_run, NULL) == 0);
    live_learn();
}

/* A request of a good trainer, edited, or (mode 2) other bytes altogether; mode 1: with a state
 * token after it; mode 4: with the contract after that. It is not allowed to stop the engine. */
FUZZ size_t live_message(struct fuzz_input *input, struct rp_request *request)
{
    unsigned mode = (unsigned)fuzz_number(input, 1);
    size_t token_bytes = mode & 1 ? live_token_bytes : 0, bytes = sizeof *request;
    size_t contract_bytes = mode & 4 ? live_contract_bytes : 0;
    *request = (struct rp_request){.magic = RP_MESSAGE_MAGIC,
                                   .abi_version = RP_ABI_VERSION,
                                   .kind = RP_REQUEST_ATTACH,
                                   .run = "fuzz",
                                   .next_row = RP_NEXT_ROW_ANY,
                                   .step_row = RP_NEXT_ROW_ANY,
                                   .state_bytes = (uint32_t)token_bytes,
                                   .contract_bytes = (uint32_t)contract_bytes};
    memcpy(live_bytes, request, bytes);
    memcpy(live_bytes + bytes, live_token, token_bytes);
    memcpy(live_bytes + bytes + token_bytes, live_contract, contract_bytes);
    bytes += token_bytes + contract_bytes;
    if (mode & 2) {
        bytes = rp_min_u64(input->left, sizeof live_bytes);
        memcpy(live_bytes, input->at, bytes);
    } else {
        fuzz_edit(input, live_bytes, bytes);
    }
    memcpy(request, live_bytes, sizeof *request);
    if (request->kind == RP_REQUEST_STOP) /* that would be its end */
        live_bytes[offsetof(struct rp_request, kind)] = RP_REQUEST_STAT;
    return bytes;
}

/* `expects`: lines that the other record lacks are not compared, and neither are sections. */
static bool fields_fit(const struct rp_record *ours, const struct rp_record *found, bool expects)
{
    struct rp_field field, other;
    for (size_t at = 0; rp_record_next(ours, &at, &field);) {
        char name[RP_RECORD_NAME_MAX + 1];
        snprintf(name, sizeof name, "%.*s", (int)field.name_bytes, field.name);
        if (expects && (!strcmp(name, "sections") || !rp_record_find(found, name, &other)))
            continue;
        if (field.sign != ':' &&
            (!rp_record_find(found, name, &other) || other.value_bytes != field.value_bytes ||
             memcmp(other.value, field.value, field.value_bytes) != 0))
            return false;
    }
    return true;
}

/* Whether a message has no contract, or one with each field of the engine's. */
FUZZ bool live_contract_fits(const struct rp_request *request, size_t bytes)
{
    struct rp_contract ours, found;
    if (request->contract_bytes == 0)
        return true;
    if ((uint64_t)request->state_bytes + request->contract_bytes != bytes - sizeof *request)
        return false;
    const char *text = (const char *)live_bytes + sizeof *request + request->state_bytes;
    FUZZ_REQUIRE(rp_contract_open(&ours, live_contract, live_contract_bytes, NULL) == 0);
    return rp_contract_open(&found, text, request->contract_bytes, NULL) == 0 &&
           fields_fit(&ours.stream, &found.stream, request->expects != 0) &&
           fields_fit(&ours.delivery, &found.delivery, request->expects != 0);
}

#endif
