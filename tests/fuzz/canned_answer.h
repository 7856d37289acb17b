/* SPDX-License-Identifier: Apache-2.0 */
/* canned_answer.h — an engine that has given its answer before it is asked: the trainer's library
 * connects to memory_socket.h, and gets a ring of memory_segment.h. */
#ifndef RP_TESTS_CANNED_ANSWER_H
#define RP_TESTS_CANNED_ANSWER_H

#include "../unit/fake_engine.h"
#include "memory_segment.h"
#include "memory_socket.h"

static struct rp_ring ring;
static char body[12 + FAKE_CONTRACT_BYTES] = "state, 0\nxyz";
static struct rp_contract contract;

int __wrap_rp_socket_connect(const char *run_dir, const char *run, struct rp_error *error);
int __wrap_rp_socket_connect(const char *run_dir, const char *run, struct rp_error *error)
{
    (void)run_dir, (void)run, (void)error;
    return peer_connect();
}

int __wrap_rp_socket_connect_within(const char *run_dir, const char *run, uint64_t patience_ns,
                                    struct rp_error *error);
int __wrap_rp_socket_connect_within(const char *run_dir, const char *run, uint64_t patience_ns,
                                    struct rp_error *error)
{
    (void)run_dir, (void)run, (void)patience_ns, (void)error;
    return peer_connect();
}

FUZZ void answer_start(void)
{
    struct rp_geometry geometry = fake_geometry(4, 0);
    contract = fake_contract(7, 0, body + 12);
    struct rp_hash128 hash = rp_contract_hash(&contract);
    FUZZ_REQUIRE(rp_ring_create(&ring, &geometry, 1, hash, 1, 0, NULL) == 0);
    FUZZ_REQUIRE(rp_ring_attach_trainer(&ring, 0, 0, NULL) == 0);
    fake_write_batch(&ring, 0, 1);
    rp_ring_publish(&ring, 1);
}

FUZZ void choose_fds(unsigned mode)
{
    peer.fds[0] = mode % 4 == 3 ? ring.seats[0].control.fd : ring.data.fd;
    peer.fds[1] = mode % 4 == 3 ? ring.data.fd : ring.seats[0].control.fd;
    peer.fd_count = mode % 4 < 2 ? 0 : 2;
    rp_ring_set_status(&ring,
                       mode & 8    ? RP_RING_END
                       : mode & 16 ? RP_RING_STOPPED
                                   : RP_RING_RUNNING,
                       1, NULL);
}

FUZZ void make_answer(unsigned mode, struct fuzz_input *input)
{
    struct rp_reply good = {.magic = RP_MESSAGE_MAGIC,
                            .abi_version = RP_ABI_VERSION,
                            .kind = mode & 128 ? RP_REPLY_TEXT : RP_REPLY_WELCOME,
                            .contract_bytes = (uint32_t)rp_contract_bytes(&contract),
                            .generation = 1};
    good.text_bytes = 12 + good.contract_bytes;
    peer.bytes = sizeof good + good.text_bytes;
    memcpy(peer.message, &good, sizeof good);
    memcpy(peer.message + sizeof good, body, good.text_bytes);
    if (!(mode & 4)) {
        fuzz_edit(input, peer.message, peer.bytes);
    } else {
        peer.bytes = rp_min_u64(input->left, sizeof peer.message);
        if (peer.bytes)
            memcpy(peer.message, input->at, peer.bytes);
    }
}

#endif
