/* SPDX-License-Identifier: Apache-2.0 */
/* The first message of a peer (HELLO), and everything that the engine checks before it touches a
 * flow: u8 message (1: a state token is appended; 128: the contract is; 2: the bytes are the
 * message, or else edits of a good one; 4: the rest of the request comes in a descriptor; 8: two
 * descriptors come along; 16: a u16 comes first, which cuts the message; 32: the peer does not
 * read; 64: who had a seat has died and nobody has noticed yet), u8 engine (1: other weights are
 * accepted; 2: there are checkpoints; 4: it is stopping; 8: the place cannot be had; 240: number of
 * following doorbells), then the bytes.
 *
 * A request for an existing free seat with the right stream and shape is welcomed with the memory
 * of that seat; no other is. A refused request gets a message, bytes that are no request get none,
 * and only the requested action is done. Doorbells get no answer. */
#include "engine_of_seats.h"

enum outcome { HUNG_UP, REFUSED, WELCOMED, TOLD, OWED };

static uint8_t whole[PEER_BYTES_MAX]; /* the message with its body */
static size_t whole_bytes;
static bool must_look; /* whether the trainers that have a seat are still there */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    engine_start();
    return 0;
}

static void make_message(unsigned mode, struct fuzz_input *input)
{
    size_t cut = mode & 16 ? fuzz_number(input, 2) : SIZE_MAX;
    struct rp_request good = {.magic = RP_MESSAGE_MAGIC,
                              .abi_version = RP_ABI_VERSION,
                              .kind = RP_REQUEST_ATTACH,
                              .run = "fuzz",
                              .rank = RANK_FIRST,
                              .next_row = RP_NEXT_ROW_ANY,
                              .step_row = RP_NEXT_ROW_ANY,
                              .state_bytes = mode & 1 ? (uint32_t)good_token_bytes : 0,
                              .contract_bytes = mode & 128 ? sizeof CONTRACT - 1 : 0};
    if (mode & 2) {
        whole_bytes = rp_min_u64(input->left, sizeof whole);
        if (whole_bytes)
            memcpy(whole, input->at, whole_bytes);
    } else {
        size_t head_bytes = sizeof good + good.state_bytes;
        whole_bytes = head_bytes + good.contract_bytes;
        memcpy(whole, &good, sizeof good);
        memcpy(whole + sizeof good, good_token, good.state_bytes);
        memcpy(whole + head_bytes, CONTRACT, good.contract_bytes);
        fuzz_edit(input, whole, whole_bytes);
    }
    whole_bytes = rp_min_u64(whole_bytes, cut);
    memcpy(peer.message, whole, whole_bytes);
    peer.bytes = whole_bytes;
    peer.fds[0] = peer.fds[1] = rings[0].data.fd;
    peer.fd_count = mode & 8 ? 2 : 0;
    if (mode & 4)
        peer_move_body(sizeof good);
}

static bool fits(uint32_t expected, uint32_t is)
{
    return expected == 0 || expected == is;
}

static uint32_t seat_of(const struct rp_request *request)
{
    return (request->rank - RANK_FIRST) * REPLICAS + request->replica;
}

/* None, or ours, but for lines that are not compared. */
static bool contract_fits(const struct rp_request *request)
{
    const struct rp_contract_sides sides = {request->expects ? RP_AT_ATTACH : RP_AT_REATTACH, "one",
                                            "the other", 0, 0};
    const char *text = (const char *)whole + sizeof *request + request->state_bytes;
    struct rp_contract had;
    return request->contract_bytes == 0 ||
           (rp_contract_open(&had, text, request->contract_bytes, NULL) == 0 &&
            rp_contract_compare(&had, &engine.stream.contract, &sides, NULL) == 0);
}

static bool may_sit(const struct rp_request *request)
{
    struct rp_state_info info;
    bool row_is_known = request->next_row != RP_NEXT_ROW_ANY || request->state_bytes == 0 ||
                        rp_state_info(whole + sizeof *request, request->state_bytes, &info, NULL) ==
                            0;
    return request->rank >= RANK_FIRST && request->rank < RANK_FIRST + RINGS &&
           request->replica < REPLICAS && (seat_of(request) != TAKEN || neighbour.hung_up) &&
           fits(request->replicas, REPLICAS) && fits(request->world, served.dp_world_size) &&
           fits(request->rows, served.batch_size) && fits(request->seq_len, served.seq_len) &&
           contract_fits(request) && !rp_life_is_ending(&engine.life) && row_is_known;
}

/* The expected outcome. */
static enum outcome judge(const struct rp_request *request)
{
    bool is_whole = whole_bytes >= sizeof *request || request->abi_version != RP_ABI_VERSION;
    if (request->magic != RP_MESSAGE_MAGIC || !is_whole)
        return HUNG_UP;
    if (request->abi_version != RP_ABI_VERSION ||
        strncmp(request->run, served.run, sizeof request->run) != 0)
        return REFUSED;
    switch (request->kind) {
    case RP_REQUEST_ATTACH:
        must_look = (uint64_t)request->state_bytes + request->contract_bytes ==
                        whole_bytes - sizeof *request &&
                    contract_fits(request);
        return !must_look || !may_sit(request) || placement.is_refused ? REFUSED : WELCOMED;
    case RP_REQUEST_STAT:
        return TOLD;
    case RP_REQUEST_LOCATE: /* the engine has no sources, so that it knows no document */
        return request->state_bytes == 0 && request->contract_bytes == 0 &&
                       whole_bytes == sizeof *request
                   ? TOLD
                   : REFUSED;
    case RP_REQUEST_STOP:
        return OWED;
    case RP_REQUEST_CHECKPOINT:
        return engine.saving.checkpoints && !rp_life_is_ending(&engine.life) ? OWED : REFUSED;
    default:
        return REFUSED;
    }
}

static void check_reply(enum outcome outcome)
{
    static const uint32_t kinds[] = {
        [REFUSED] = RP_REPLY_REFUSED, [WELCOMED] = RP_REPLY_WELCOME, [TOLD] = RP_REPLY_TEXT};
    struct rp_reply reply;
    FUZZ_REQUIRE(peer.got_messages == 1 && peer.got_bytes >= sizeof reply);
    memcpy(&reply, peer.got, sizeof reply);
    const char *text = (const char *)peer.got + sizeof reply;
    FUZZ_REQUIRE(reply.magic == RP_MESSAGE_MAGIC && reply.abi_version == RP_ABI_VERSION);
    FUZZ_REQUIRE(reply.kind == kinds[outcome] && reply.generation == engine.delivery.generation);
    FUZZ_REQUIRE(reply.text_bytes == peer.got_bytes - sizeof reply);
    FUZZ_REQUIRE(peer.got_fd_count == (outcome == WELCOMED ? 2 : 0));
    if (outcome == REFUSED) {
        const char *hint = memchr(text, '\n', reply.text_bytes);
        FUZZ_REQUIRE(reply.code < 0 && hint && hint > text);
    } else {
        FUZZ_REQUIRE(reply.code == 0);
    }
}

static void check_welcome(const struct rp_connection *connection, const struct rp_request *request)
{
    const struct rp_seat *seat = &seats[seat_of(request)];
    const uint8_t *token = whole + sizeof *request, *told = peer.got + sizeof(struct rp_reply);
    size_t contract_bytes = rp_contract_bytes(&engine.stream.contract);
    FUZZ_REQUIRE(peer.got_bytes >= sizeof(struct rp_reply) + contract_bytes);
    size_t told_bytes = peer.got_bytes - sizeof(struct rp_reply) - contract_bytes;
    FUZZ_REQUIRE(memcmp(told + told_bytes, CONTRACT, contract_bytes) == 0);
    bool brings = request->state_bytes > 0;
    FUZZ_REQUIRE(connection->seat == seat && rp_seat_is_attached(seat));
    FUZZ_REQUIRE(placement.times == 1 && placement.seat == seat && placement.has_token == brings);
    FUZZ_REQUIRE(placement.names_row == (request->next_row != RP_NEXT_ROW_ANY));
    struct rp_state_info info = {.next_row = request->next_row};
    if (brings && !placement.names_row)
        FUZZ_REQUIRE(rp_state_info(token, request->state_bytes, &info, NULL) == 0);
    FUZZ_REQUIRE(placement.request.next_row == info.next_row);
    FUZZ_REQUIRE(peer.got_fds[0] == seat->ring->data.fd);
    FUZZ_REQUIRE(peer.got_fds[1] == seat->ring->seats[seat->replica].control.fd);
    FUZZ_REQUIRE(told_bytes == (brings ? request->state_bytes : sizeof KEPT_STATE));
    FUZZ_REQUIRE(memcmp(told, brings ? token : (const uint8_t *)KEPT_STATE, told_bytes) == 0);
}

static void check_outcome(const struct rp_connection *connection, enum outcome outcome,
                          const struct rp_request *request, enum rp_life_state state)
{
    bool replies = outcome == REFUSED || outcome == WELCOMED || outcome == TOLD;
    bool stays = (replies && !peer.is_deaf && outcome != REFUSED) || outcome == OWED;
    bool stops = outcome == OWED && request->kind == RP_REQUEST_STOP;
    FUZZ_REQUIRE(fuzz_opened(peer.fd) == stays && (connection->fd >= 0) == stays);
    FUZZ_REQUIRE(connection->awaits == (outcome != OWED ? RP_AWAITS_NOTHING
                                        : stops         ? RP_AWAITS_END
                                                        : RP_AWAITS_NEXT_SAVE));
    FUZZ_REQUIRE(engine.life.life_state == (stops ? RP_LIFE_STOPPING : state));
    FUZZ_REQUIRE(placement.times <= 1 && (outcome == WELCOMED || placement.times == 0 ||
                                          (outcome == REFUSED && placement.is_refused)));
    if (replies && !peer.is_deaf)
        check_reply(outcome);
    else
        FUZZ_REQUIRE(peer.got_messages == 0);
    if (outcome == WELCOMED && !peer.is_deaf)
        check_welcome(connection, request);
    bool neighbour_stays = !must_look || !neighbour.hung_up;
    FUZZ_REQUIRE((connections[0].fd >= 0) == neighbour_stays);
    for (uint32_t s = 0; s < RINGS * REPLICAS; s++)
        FUZZ_REQUIRE(rp_seat_is_attached(&seats[s]) ==
                     ((s == TAKEN && neighbour_stays) ||
                      (outcome == WELCOMED && stays && s == seat_of(request))));
}

/* A peer that is welcome rings as often as it likes, and stays until it hangs up. */
static void check_doorbells(struct rp_connection *connection, const struct rp_request *request)
{
    for (unsigned i = 0; i < 5; i++)
        rp_engine_serve_connection(&engine, connection);
    FUZZ_REQUIRE(peer.doorbells == 0 && fuzz_opened(peer.fd) == 1 && peer.got_messages == 1);
    peer.hung_up = true;
    rp_engine_serve_connection(&engine, connection);
    FUZZ_REQUIRE(connection->fd < 0 && fuzz_opened(peer.fd) == 0);
    FUZZ_REQUIRE(!rp_seat_is_attached(&seats[seat_of(request)]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned mode = (unsigned)fuzz_number(&input, 1), kind = (unsigned)fuzz_number(&input, 1);
    enum rp_life_state state = kind & 4 ? RP_LIFE_STOPPING : RP_LIFE_RUNNING;
    struct rp_connection *connection = &connections[1]; /* after the neighbour's */
    *connection = (struct rp_connection){.fd = peer_connect()};
    struct rp_request request = {0};
    make_message(mode, &input);
    neighbour_sits_down();
    neighbour.hung_up = mode & 64;
    must_look = false;
    memcpy(&request, whole, rp_min_u64(whole_bytes, sizeof request));
    peer.is_deaf = mode & 32;
    peer.doorbells = kind & 240;
    engine.stream.accepts_weights = kind & 1;
    engine.saving.checkpoints = kind & 2 ? (struct rp_checkpoint_dir *)&engine : NULL;
    engine.life.life_state = state;
    engine.saving.is_wanted = false; /* one that stops has begun its last */
    placement = (struct placement){.is_refused = kind & 8};
    enum outcome outcome = judge(&request);

    rp_engine_serve_connection(&engine, connection);
    check_outcome(connection, outcome, &request, state);
    if (outcome == WELCOMED && !peer.is_deaf)
        check_doorbells(connection, &request);

    rp_engine_close_connection(&engine, connection);
    neighbour_gets_up();
    if (mode & 4)
        close(peer.fds[peer.fd_count - 1]);
    FUZZ_REQUIRE(fuzz_opened(peer.fd) == 0 && fuzz_opened(rings[0].data.fd) == 1);
    FUZZ_REQUIRE(!(mode & 4) || fuzz_opened(peer.fds[peer.fd_count - 1]) == 0);
    return 0;
}
