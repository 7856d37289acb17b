/* SPDX-License-Identifier: Apache-2.0 */
/* fake_engine.h — batches whose content is a function of their rows, and the smallest engine that
 * serves them.
 *
 * It has no corpus and no plan: token i of row g is fake_token(g, i). So a trainer knows the
 * expected batches, after any event on either side. One rank of a world of one. */
#ifndef RP_TESTS_FAKE_ENGINE_H
#define RP_TESTS_FAKE_ENGINE_H

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fail.h"
#include "patience.h"
#include "ringpack/client.h"
#include "shm/ring.h"
#include "receive.h"

#define FAKE __attribute__((unused)) static

#define FAKE_ROWS 2u
#define FAKE_SEQ_LEN 16u
#define FAKE_STATE_BYTES 64u
#define FAKE_CONTRACT_BYTES 80u

FAKE uint32_t fake_token(uint64_t row, uint32_t i)
{
    return (uint32_t)((row * 2654435761u + i * 40503u) >> 7) & 0xffff;
}

FAKE uint32_t fake_fragments(uint64_t row)
{
    return 1 + (uint32_t)(row % 3);
}

FAKE struct rp_geometry fake_geometry(uint32_t slots, uint64_t base_row)
{
    struct rp_geometry geometry = {.rows = FAKE_ROWS,
                                   .seq_len = FAKE_SEQ_LEN,
                                   .max_docs_per_row = 4,
                                   .world = 1,
                                   .micro_batches = 1,
                                   .slots = slots,
                                   .pad_id = -1,
                                   .base_row = base_row,
                                   .state_bytes = FAKE_STATE_BYTES};
    RP_ASSERT(rp_geometry_layout(&geometry, 1u << RP_SECTION_PROVENANCE, RP_DTYPE_I32) > 0);
    return geometry;
}

FAKE uint32_t fake_state(uint64_t next_row, char state[FAKE_STATE_BYTES])
{
    return (uint32_t)snprintf(state, FAKE_STATE_BYTES, "state before row %llu",
                              (unsigned long long)next_row);
}

FAKE struct rp_row_info *fake_rows(const struct rp_geometry *g, uint8_t *slot)
{
    return (struct rp_row_info *)(void *)(slot + g->sections[RP_SECTION_ROWS].offset);
}

FAKE void fake_write_row(const struct rp_geometry *g, uint8_t *slot, uint32_t i, uint64_t row)
{
    struct rp_row_info *info = fake_rows(g, slot);
    int32_t *lengths = (int32_t *)(void *)(slot + g->sections[RP_SECTION_DOC_LENS].offset);
    int32_t *ids = (int32_t *)(void *)(slot + g->sections[RP_SECTION_INPUT_IDS].offset);
    info[i] = (struct rp_row_info){row, fake_fragments(row), FAKE_SEQ_LEN};
    memset(lengths + i * g->max_docs_per_row, 0, g->max_docs_per_row * sizeof *lengths);
    for (uint32_t t = 0; t < FAKE_SEQ_LEN; t++)
        lengths[i * g->max_docs_per_row + t % fake_fragments(row)]++;
    for (uint32_t t = 0; t < FAKE_SEQ_LEN; t++)
        ids[i * g->seq_len + t] = (int32_t)fake_token(row, t);
}

FAKE void fake_write_batch(const struct rp_ring *ring, uint64_t batch, uint64_t generation)
{
    const struct rp_geometry *g = &ring->geometry;
    uint8_t *slot = rp_ring_slot(ring, batch);
    uint64_t row = g->base_row + batch * g->rows;
    struct rp_slot_header *header = (struct rp_slot_header *)(void *)slot;
    *header = (struct rp_slot_header){.batch = batch,
                                      .generation = generation,
                                      .first_row = row,
                                      .next_row = row + g->rows,
                                      .rows = g->rows,
                                      .micro_batches = 1,
                                      .step = batch,
                                      .rows_real = g->rows,
                                      .tokens_real = g->rows * g->seq_len,
                                      .state_offset = RP_SLOT_STATE_OFFSET};
    header->state_bytes = fake_state(row + g->rows, (char *)slot + RP_SLOT_STATE_OFFSET);
    for (uint32_t i = 0; i < g->rows; i++)
        fake_write_row(g, slot, i, row + i);
}

/* Whether the batch begins at `row` and has the expected content. */
FAKE bool fake_batch_holds(const struct rp_batch *batch, uint64_t row)
{
    const struct rp_row_info *info = batch->sections[RP_SECTION_ROWS];
    const int32_t *ids = batch->sections[RP_SECTION_INPUT_IDS];
    bool right = batch->first_row == row && batch->next_row == row + FAKE_ROWS &&
                 batch->rows == FAKE_ROWS;
    for (uint32_t i = 0; right && i < FAKE_ROWS; i++) {
        right = info[i].row == row + i && info[i].fragments == fake_fragments(row + i);
        for (uint32_t t = 0; right && t < FAKE_SEQ_LEN; t++)
            right = (uint32_t)ids[i * FAKE_SEQ_LEN + t] == fake_token(row + i, t);
    }
    return right;
}

/* ---- where engine and trainers meet ---------------------------------------------------------- */

static char fake_run_dir[] = "/tmp/rp-test-client-XXXXXX";

FAKE int fake_enter(void **state)
{
    (void)state;
    return mkdtemp(fake_run_dir) ? 0 : -1;
}

FAKE int fake_leave(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", fake_run_dir);
    return system(command);
}

FAKE struct rp_client_options fake_client_options(void)
{
    return (struct rp_client_options){.struct_size = sizeof(struct rp_client_options),
                                      .run_dir = fake_run_dir,
                                      .connect_timeout_ns = PATIENCE_NS,
                                      .restart_timeout_ns = PATIENCE_NS};
}

/* ---- the engine ------------------------------------------------------------------------------ */

struct fake_options {
    const char *run_dir;
    uint64_t generation, base_row, batches; /* batches 0 = endless */
    uint32_t slots;
    uint64_t fail_at, stop_at; /* batch of its failure or stop; 0 = never */
    uint64_t seed, pad_id;     /* its contract's */
    uint64_t fault_at;         /* batch whose first row has a wrong number; 0 = none */
    int64_t fault;             /* which is added to it */
};

/* The contract of that engine, of one field in each record. */
FAKE struct rp_contract fake_contract(uint64_t seed, uint64_t pad_id,
                                      char text[FAKE_CONTRACT_BYTES])
{
    struct rp_contract contract;
    int bytes = snprintf(text, FAKE_CONTRACT_BYTES, "seed=%llu\n\npad_id=%llu\n",
                         (unsigned long long)seed, (unsigned long long)pad_id);
    RP_ASSERT(rp_contract_open(&contract, text, (size_t)bytes, NULL) == 0);
    return contract;
}

struct fake_engine {
    struct fake_options options;
    struct rp_listener listener;
    struct rp_ring ring;
    int trainer; /* -1: none */
};

FAKE void fake_reply(int fd, uint32_t kind, int code, uint64_t first_batch, uint64_t first_row,
                     uint64_t generation, const char *text, size_t contract_bytes, const int *fds)
{
    struct rp_reply reply = {.magic = RP_MESSAGE_MAGIC,
                             .abi_version = RP_ABI_VERSION,
                             .kind = kind,
                             .code = code,
                             .text_bytes = (uint32_t)strlen(text),
                             .contract_bytes = (uint32_t)contract_bytes,
                             .first_batch = first_batch,
                             .first_row = first_row,
                             .step_row = first_row,
                             .generation = generation};
    int sent = rp_socket_send(fd,
                              &(struct rp_message){.header = &reply,
                                                   .header_bytes = sizeof reply,
                                                   .body = text,
                                                   .body_bytes = strlen(text),
                                                   .fds = fds,
                                                   .fd_count = fds ? 2 : 0},
                              NULL);
    (void)sent;
}

/* The row of a trainer's request, out of it and its state token. */
FAKE uint64_t fake_wanted_row(const struct fake_engine *engine, const struct rp_request *request)
{
    unsigned long long row;
    if (request->next_row != RP_NEXT_ROW_ANY)
        return request->next_row;
    if (request->state_bytes &&
        sscanf((const char *)(request + 1), "state before row %llu", &row) == 1)
        return row;
    return engine->options.base_row;
}

FAKE void fake_welcome(struct fake_engine *engine, int fd, const struct rp_request *request)
{
    uint64_t row = fake_wanted_row(engine, request);
    uint64_t batch = (row - engine->options.base_row) / FAKE_ROWS;
    if (row < engine->options.base_row || (row - engine->options.base_row) % FAKE_ROWS) {
        fake_reply(fd, RP_REPLY_REFUSED, -RP_E_MISMATCH, 0, 0, 0,
                   "row is not ours\nask for another", 0, NULL);
        close(fd);
        return;
    }
    RP_ASSERT(rp_ring_attach_trainer(&engine->ring, 0, batch, NULL) == 0);
    char body[FAKE_STATE_BYTES + FAKE_CONTRACT_BYTES];
    fake_state(row, body);
    struct rp_contract contract = fake_contract(engine->options.seed, engine->options.pad_id,
                                                body + strlen(body));
    int fds[2] = {engine->ring.data.fd, engine->ring.seats[0].control.fd};
    fake_reply(fd, RP_REPLY_WELCOME, 0, batch, row, engine->options.generation, body,
               rp_contract_bytes(&contract), fds);
    engine->trainer = fd;
}

FAKE void fake_accept(struct fake_engine *engine)
{
    int fd = rp_listener_accept(&engine->listener, NULL), fds[2];
    if (fd < 0)
        return;
    char buffer[4096] = {0};
    int64_t bytes = receive_into(fd, buffer, sizeof buffer - 1, fds, PATIENCE_MS, NULL);
    const struct rp_request *request = (const struct rp_request *)(void *)buffer;
    if (bytes < (int64_t)sizeof *request) {
        close(fd);
    } else if (request->kind == RP_REQUEST_STAT) {
        fake_reply(fd, RP_REPLY_TEXT, 0, 0, 0, 0, "{\"run\": \"default\"}", 0, NULL);
        close(fd);
    } else if (request->world > 1) {
        fake_reply(fd, RP_REPLY_REFUSED, -RP_E_MISMATCH, 0, 0, 0, "dp_world_size: 1 here\nuse 1", 0,
                   NULL);
        close(fd);
    } else if (engine->trainer >= 0) {
        fake_reply(fd, RP_REPLY_REFUSED, -RP_E_BUSY, 0, 0, 0, "rank 0 is taken", 0, NULL);
        close(fd);
    } else {
        fake_welcome(engine, fd, request);
    }
}

FAKE void fake_hear(struct fake_engine *engine)
{
    char bell;
    ssize_t bytes = recv(engine->trainer, &bell, 1, MSG_DONTWAIT);
    if (bytes != 0)
        return;
    close(engine->trainer);
    engine->trainer = -1;
    rp_ring_detach_trainer(&engine->ring, 0);
}

/* Write as much as there is room for. */
FAKE void fake_produce(struct fake_engine *engine)
{
    struct rp_ring *ring = &engine->ring;
    const struct fake_options *o = &engine->options;
    int polled = rp_ring_poll_release(ring);
    if (polled < 0 || engine->trainer < 0)
        return;
    for (; ring->tail - ring->release < ring->geometry.slots;
         rp_ring_publish(ring, ring->tail + 1)) {
        if (o->batches && ring->tail == o->batches)
            return rp_ring_set_status(ring, RP_RING_END, o->batches, NULL);
        if (o->stop_at && ring->tail == o->stop_at)
            return rp_ring_set_status(ring, RP_RING_STOPPED, 0, NULL);
        if (o->fail_at && ring->tail == o->fail_at)
            return rp_ring_set_status(ring, RP_RING_FAILED, (uint64_t) - (int64_t)RP_E_CORRUPT,
                                      "the disk is on fire\npour water");
        fake_write_batch(ring, ring->tail, o->generation);
        if (o->fault_at && ring->tail == o->fault_at)
            fake_rows(&ring->geometry, rp_ring_slot(ring, ring->tail))->row += (uint64_t)o->fault;
    }
}

FAKE void fake_serve(struct fake_options options)
{
    struct rp_error error;
    struct fake_engine engine = {.options = options, .trainer = -1};
    struct rp_geometry geometry = fake_geometry(options.slots, options.base_row);
    char text[FAKE_CONTRACT_BYTES];
    struct rp_contract contract = fake_contract(options.seed, options.pad_id, text);
    if (rp_listener_open(&engine.listener, options.run_dir, "default", &error) != 0 ||
        rp_ring_create(&engine.ring, &geometry, 1,
                       (struct rp_ring_identity){rp_contract_hash(&contract), options.generation},
                       0, &error) != 0) {
        fprintf(stderr, "fake engine: %s\n", error.message);
        _exit(3);
    }
    bool fits = options.batches && options.batches <= options.slots; /* so no space is awaited */
    for (;;) {
        rp_ring_set_doorbell(&engine.ring, !fits);
        fake_produce(&engine);
        struct pollfd entries[2] = {{engine.listener.fd, POLLIN, 0}, {engine.trainer, POLLIN, 0}};
        poll(entries, 2, -1);
        if (entries[0].revents)
            fake_accept(&engine);
        if (entries[1].revents)
            fake_hear(&engine);
    }
}

/* Start it in a child that dies with us. */
FAKE pid_t fake_start(struct fake_options options)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fake_serve(options);
    }
    return pid;
}

FAKE void fake_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

#endif
