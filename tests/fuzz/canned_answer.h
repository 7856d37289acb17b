/* SPDX-License-Identifier: Apache-2.0 */
/* canned_answer.h — an engine that has given its answer before the request: the trainer's library
 * connects to memory_socket.h, and gets a ring of memory_segment.h. */
#ifndef RP_TESTS_CANNED_ANSWER_H
#define RP_TESTS_CANNED_ANSWER_H

#include "../unit/fake_engine.h"
#include "memory_segment.h"
#include "memory_socket.h"

#define GOOD_MODE 2u /* an answer with its two descriptors */
#define STATE_TEXT_BYTES 12u

static struct rp_ring ring;
static char body[STATE_TEXT_BYTES + FAKE_CONTRACT_BYTES] = "state, 0\nxyz";
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

/* The ring of the next answer. */
static void set_contract(struct rp_hash128 hash)
{
    struct rp_ring_header *header = (struct rp_ring_header *)(void *)ring.data.data;
    header->contract = hash;
    header->header_hash = rp_hash128(header, offsetof(struct rp_ring_header, header_hash));
}

static bool has_field(const struct rp_record *record, const char *name, char value)
{
    struct rp_field field;
    return rp_record_find(record, name, &field) && field.value_bytes == 1 &&
           field.value[0] == value;
}

/* Let the ring have the hash of the contract that is in the answer, so that the trainer compares
 * the fields. Returns whether they equal the unedited ones. */
FUZZ bool believe_contract(void)
{
    struct rp_reply head;
    struct rp_contract found;
    if (peer.bytes < sizeof head)
        return false;
    memcpy(&head, peer.message, sizeof head);
    if (head.text_bytes != peer.bytes - sizeof head || head.contract_bytes > head.text_bytes)
        return false;
    const char *text = (const char *)peer.message + peer.bytes - head.contract_bytes;
    if (rp_contract_open(&found, text, head.contract_bytes, NULL) < 0)
        return false;
    set_contract(rp_contract_hash(&found));
    return has_field(&found.stream, "seed", '7') && has_field(&found.delivery, "pad_id", '0');
}

FUZZ void answer_start(void)
{
    struct rp_geometry geometry = fake_geometry(4, 0);
    contract = fake_contract(7, 0, body + STATE_TEXT_BYTES);
    struct rp_hash128 hash = rp_contract_hash(&contract);
    FUZZ_REQUIRE(rp_ring_create(&ring, &geometry, 1, (struct rp_ring_identity){hash, 1}, 0, NULL) ==
                 0);
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
                            .first_batch = (mode & 192) == 64,
                            .first_row = (mode & 192) == 64 ? FAKE_ROWS : 0,
                            .generation = 1};
    set_contract(rp_contract_hash(&contract));
    good.text_bytes = STATE_TEXT_BYTES + good.contract_bytes;
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
