/* SPDX-License-Identifier: Apache-2.0 */
/* engine_of_seats.h — as much of an engine as a request meets before the flow: its config, rings
 * with seats, one of them taken, and who has connected. The fakes of flow, plan and stat (the
 * linker puts them there) check their arguments. */
#ifndef RP_TESTS_ENGINE_OF_SEATS_H
#define RP_TESTS_ENGINE_OF_SEATS_H

#include "server/attach.h"
#include "server/connections.h"
#include "server/loop.h"
#include "server/rejoin.h"
#include "server/seats.h"
#include "shm/peer.h"
#include "memory_segment.h"
#include "memory_socket.h"

#define RINGS 2u
#define REPLICAS 2u
#define RANK_FIRST 3u
#define TAKEN 3u /* seat of rank 4, replica 1: the neighbour's */
#define CONTRACT "seed=7\n\nbatch_size=1\npad_id=0\n"
#define KEPT_STATE "the state at that batch"

static char run_name[] = "fuzz";
static struct rp_config served = {.run = run_name,
                                  .rank_first = RANK_FIRST,
                                  .rank_count = RINGS,
                                  .consumers_per_rank = REPLICAS,
                                  .dp_world_size = 8,
                                  .batch_size = 1,
                                  .seq_len = 8};
static struct rp_engine_options options = {.config = &served};
static struct rp_error engine_error;
static struct rp_ring rings[RINGS];
static struct rp_seat seats[RINGS * REPLICAS];
static struct rp_connection connections[2]; /* the neighbour's, and another */
static const struct rp_batch_stage sizes = {0, 8, 8};
static struct rp_numbering_part part = {.batch_rows = 8, .step_rows = 8};
static struct rp_engine engine = {.options = &options,
                                  .config = &served,
                                  .stream.config = &served,
                                  .delivery.config = &served,
                                  .saving.config = &served,
                                  .stream.state_bytes_max = 4096,
                                  .delivery.generation = 7,
                                  .delivery.geometry.seq_len = 8,
                                  .delivery.numbering = {&sizes, &part, 1},
                                  .delivery.ring_count = RINGS,
                                  .delivery.rings = rings,
                                  .delivery.seat_count = RINGS * REPLICAS,
                                  .delivery.seats = seats,
                                  .peers.connections = connections,
                                  .peers.connection_count = 2,
                                  .delivery.state = RP_DELIVERY_RUNNING,
                                  .life.life_state = RP_LIFE_RUNNING,
                                  .life.error = &engine_error};

/* The requests of the present input to the flow. */
static struct placement {
    unsigned times;
    bool is_refused; /* its answer */
    struct rp_request request;
    bool names_row, has_token;
    const struct rp_seat *seat;
} placement;

static uint8_t good_token[4096]; /* a state token of some stream */
static size_t good_token_bytes;

static uint64_t five_tokens(const void *lengths, uint64_t document)
{
    (void)lengths, (void)document;
    return 5;
}

FUZZ void make_token(void)
{
    struct rp_plan_config config = {.seed = 1, .seq_len = 8, .packing = RP_PACKING_CONCAT};
    struct rp_plan_source source = {.documents = 9, .weight = 1, .length = five_tokens};
    struct rp_plan *plan;
    config.lanes = 1, config.max_docs_per_row = 8;
    FUZZ_REQUIRE(rp_plan_open(&plan, &config, &source, 1, NULL) == 0);
    FUZZ_REQUIRE(rp_plan_seek(plan, 2, NULL) == 0);
    FUZZ_REQUIRE(rp_plan_state_bytes_max(plan) <= sizeof good_token);
    good_token_bytes = rp_plan_save(plan, good_token);
    rp_plan_close(plan);
}

FUZZ void engine_start(void)
{
    make_token();
    FUZZ_REQUIRE(rp_contract_open(&engine.stream.contract, CONTRACT, sizeof CONTRACT - 1, NULL) ==
                 0);
    rp_log_set_level(RP_LOG_ERROR);
    for (uint32_t r = 0; r < RINGS; r++) {
        struct rp_geometry g = {.rows = 1, .seq_len = 8, .max_docs_per_row = 1, .world = 8};
        g.slots = 2, g.rank = RANK_FIRST + r;
        FUZZ_REQUIRE(rp_geometry_layout(&g, 0, RP_DTYPE_I32) > 0);
        FUZZ_REQUIRE(
            rp_ring_create(&rings[r], &g, REPLICAS,
                           (struct rp_ring_identity){rp_contract_hash(&engine.stream.contract), 7},
                           0, NULL) == 0);
    }
    for (uint32_t s = 0; s < RINGS * REPLICAS; s++)
        seats[s] = (struct rp_seat){.ring = &rings[s / REPLICAS], .replica = s % REPLICAS};
    for (uint32_t i = 0; i < 2; i++)
        connections[i].fd = -1;
}

/* The process that read the ring in this seat has ended. */
FUZZ void forget_reader(const struct rp_seat *seat)
{
    seat->ring->seats[seat->replica].reader_fd = RP_PEER_NONE;
}

FUZZ void neighbour_sits_down(void)
{
    neighbour.fd = open(fuzz_file("neighbour", "", 0), O_RDWR);
    connections[0] = (struct rp_connection){.fd = neighbour.fd, .seat = &seats[TAKEN], .pid = 1};
    FUZZ_REQUIRE(rp_ring_attach_trainer(seats[TAKEN].ring, seats[TAKEN].replica, 0, NULL) == 0);
    forget_reader(&seats[TAKEN]);
    rp_ring_set_reader(seats[TAKEN].ring, seats[TAKEN].replica, RP_PEER_UNKNOWN);
    rp_seat_transition(&seats[TAKEN], RP_SEAT_ATTACH);
}

FUZZ void neighbour_gets_up(void)
{
    rp_engine_close_connection(&engine, &connections[0]);
    FUZZ_REQUIRE(fuzz_opened(neighbour.fd) == 0 && !rp_seat_is_attached(&seats[TAKEN]));
    neighbour.fd = -1;
}

typeof(rp_engine_rejoin) __wrap_rp_engine_rejoin; /* its header's, so that both have one form */
int64_t __wrap_rp_engine_rejoin(struct rp_engine *asked, struct rp_seat *seat,
                                const struct rp_request *request, bool names_row, const void *token,
                                struct rp_error *error)
{
    FUZZ_REQUIRE(asked == &engine && peer.fd >= 0);
    placement.times++;
    placement.request = *request;
    placement.names_row = names_row;
    placement.has_token = token != NULL;
    placement.seat = seat;
    if (placement.is_refused)
        return rp_fail(error, -RP_E_BUSY, NULL, "not there");
    asked->delivery.had_consumer = true;
    forget_reader(seat);
    rp_seat_transition(seat, RP_SEAT_ATTACH);
    return rp_ring_attach_trainer(seat->ring, seat->replica, 0, error);
}

typeof(rp_flow_state_at) __wrap_rp_flow_state_at;
struct rp_row_state __wrap_rp_flow_state_at(const struct rp_flow *flow, uint64_t batch)
{
    FUZZ_REQUIRE(!flow && batch == 0);
    return (struct rp_row_state){KEPT_STATE, sizeof KEPT_STATE, 0};
}

typeof(rp_flow_request_revalidation) __wrap_rp_flow_request_revalidation;
void __wrap_rp_flow_request_revalidation(struct rp_flow *flow)
{
    FUZZ_REQUIRE(!flow);
}

/* Their descriptors are no kernel's. */
typeof(rp_loop_watch_end) __wrap_rp_loop_watch_end;
int __wrap_rp_loop_watch_end(const struct rp_loop *loop, int socket_fd, int pidfd, uint32_t index)
{
    FUZZ_REQUIRE(loop == &engine.loop && fuzz_opened(socket_fd));
    (void)pidfd;
    FUZZ_REQUIRE(index < engine.peers.connection_count);
    return 0;
}

typeof(rp_loop_ended) __wrap_rp_loop_ended;
uint32_t __wrap_rp_loop_ended(const struct rp_loop *loop, uint32_t *indexes)
{
    FUZZ_REQUIRE(loop == &engine.loop);
    indexes[0] = 0; /* the neighbour: it may have ended */
    return 1;
}

char *__wrap_rp_engine_stat(struct rp_engine *asked);
char *__wrap_rp_engine_stat(struct rp_engine *asked)
{
    return asked == &engine ? strdup("{}") : NULL;
}

#endif
