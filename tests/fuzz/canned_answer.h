/* SPDX-License-Identifier: Apache-2.0 */
/* canned_answer.h — an engine that has given its answer before it is asked: what the trainer's
 * library connects to is a socket with the answer in it (the linker puts __wrap_rp_socket_connect
 * in the place of rp_socket_connect). */
#ifndef RP_TESTS_CANNED_ANSWER_H
#define RP_TESTS_CANNED_ANSWER_H

#include <sys/socket.h>

#include "../unit/fake_engine.h"
#include "fuzz.h"

static struct rp_ring ring;
static uint8_t answer[4096];
static size_t answer_bytes;
static int fds[2];
static unsigned fd_count;

static int engine_end = -1;

FUZZ void hang_up(void)
{
    if (engine_end >= 0)
        close(engine_end);
    engine_end = -1;
}

/* In the place of rp_socket_connect: an engine that has answered already. */
int __wrap_rp_socket_connect(const char *run_dir, const char *run, struct rp_error *error);
int __wrap_rp_socket_connect(const char *run_dir, const char *run, struct rp_error *error)
{
    (void)run_dir, (void)run, (void)error;
    int pair[2];
    FUZZ_REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    FUZZ_REQUIRE(rp_socket_send(pair[1], answer, answer_bytes, NULL, 0, fds, fd_count, NULL) == 0);
    hang_up();
    engine_end = pair[1];
    return pair[0];
}

/* In the place of malloc: the buffer for an answer of any length, megabytes that the allocator
 * would map and unmap each time, is as long as the longest answer that is given here, which may be
 * the content of a descriptor. */
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return __real_malloc(bytes == RP_MESSAGE_BYTES_MAX + 1 ? sizeof answer + ring.data.bytes
                                                           : bytes);
}

FUZZ void answer_start(void)
{
    struct rp_geometry geometry = fake_geometry(4, 0);
    signal(SIGPIPE, SIG_IGN);
    FUZZ_REQUIRE(rp_ring_create(&ring, &geometry, 1, (struct rp_hash128){7, 0}, 1, 0, NULL) == 0);
    FUZZ_REQUIRE(rp_ring_attach_trainer(&ring, 0, 0, NULL) == 0);
    fake_write_batch(&ring, 0, 1);
    rp_ring_publish(&ring, 1);
}

FUZZ void choose_fds(unsigned mode)
{
    fds[0] = mode % 4 == 3 ? ring.seats[0].control.fd : ring.data.fd;
    fds[1] = mode % 4 == 3 ? ring.data.fd : ring.seats[0].control.fd;
    fd_count = mode % 4 == 3 ? 2 : mode % 4;
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
                            .text_bytes = 12,
                            .generation = 1};
    answer_bytes = sizeof good + good.text_bytes;
    memcpy(answer, &good, sizeof good);
    memcpy(answer + sizeof good, "state, 0\nxyz", good.text_bytes);
    if (!(mode & 4)) {
        fuzz_edit(input, answer, answer_bytes);
    } else {
        answer_bytes = rp_min_u64(input->left, sizeof answer);
        if (answer_bytes)
            memcpy(answer, input->at, answer_bytes);
    }
}

#endif
