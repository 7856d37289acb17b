/* SPDX-License-Identifier: Apache-2.0 */
/* The first message of a peer to a running engine: u8 mode (1: a state token of the stream is
 * appended; 4: so is the engine's contract), then the message, edits of a good one (2: the message
 * itself).
 *
 * The engine answers with a whole reply, or hangs up, and continues. A welcomed peer brought no
 * contract or one with the engine's fields, and gets a ring at the requested row, and in it the
 * rows of the stream and no others. */
#include "live_engine.h"
#include "../unit/receive.h"

#define PATIENCE_MS 10000
#define PLANNED_AT_ONCE 10000u /* rows; to others the engine would plan for longer than we wait */

static uint8_t answer[RP_MESSAGE_BYTES_MAX];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    live_start();
    return 0;
}

static void check_welcome(const struct rp_request *request, const struct rp_reply *reply,
                          int fds[2])
{
    struct rp_ring_view view;
    const uint8_t *slot;
    struct rp_slot_header header;
    int code = rp_ring_view_open(&view, fds[0], fds[1], reply->first_batch, NULL);
    FUZZ_REQUIRE(code == 0);
    fds[0] = fds[1] = -1;
    const struct rp_geometry *g = &view.geometry;
    uint64_t row = reply->first_row;
    FUZZ_REQUIRE(request->kind == RP_REQUEST_ATTACH && g->rank == request->rank);
    if (request->next_row != RP_NEXT_ROW_ANY)
        FUZZ_REQUIRE(row == request->next_row);
    else if (request->state_bytes)
        FUZZ_REQUIRE(row == live_token_row);
    while ((code = rp_ring_view_take(&view, &slot, &header, NULL)) == RP_RING_EMPTY)
        rp_ring_view_wait(&view, 100000000);
    FUZZ_REQUIRE(code == RP_RING_TAKEN);
    for (uint32_t i = 0; i < LIVE_BATCH && header.first_row + i < LIVE_ROWS; i++)
        FUZZ_REQUIRE(live_row_hash(g, slot + g->sections[RP_SECTION_INPUT_IDS].offset, i) ==
                     live_row_hashes[header.first_row + i]);
    rp_ring_view_close(&view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_request request;
    size_t bytes = live_message(&input, &request);
    bool far = request.next_row != RP_NEXT_ROW_ANY && request.next_row > PLANNED_AT_ONCE;
    int fd = rp_socket_connect(fuzz_scratch, "fuzz", NULL), fds[2];
    FUZZ_REQUIRE(fd >= 0 &&
                 rp_socket_send(fd,
                                &(struct rp_message){.header = live_bytes, .header_bytes = bytes},
                                NULL) == 0);
    int64_t got = receive_into(fd, answer, sizeof answer, fds, far ? 1 : PATIENCE_MS, NULL);
    FUZZ_REQUIRE(got >= 0 || (far && got == -RP_E_TIMEOUT));
    struct rp_reply reply = {.magic = RP_MESSAGE_MAGIC};
    if (got > 0)
        memcpy(&reply, answer, rp_min_u64((uint64_t)got, sizeof reply));
    FUZZ_REQUIRE(got <= 0 || (size_t)got == sizeof reply + reply.text_bytes);
    FUZZ_REQUIRE(reply.magic == RP_MESSAGE_MAGIC);
    FUZZ_REQUIRE(reply.kind != RP_REPLY_REFUSED || (reply.code < 0 && reply.text_bytes > 1));
    if (reply.kind == RP_REPLY_WELCOME) {
        FUZZ_REQUIRE(live_contract_fits(&request, bytes));
        check_welcome(&request, &reply, fds);
    }
    FUZZ_REQUIRE(fds[0] < 0 && fds[1] < 0);
    close(fd);
    return 0;
}
