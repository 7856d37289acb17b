/* SPDX-License-Identifier: Apache-2.0 */
/* canned_answer.h — an engine that has given its answer before it is asked, without a kernel: the
 * linker puts the calls here in the place of those that the trainer's library makes of a socket. */
#ifndef RP_TESTS_CANNED_ANSWER_H
#define RP_TESTS_CANNED_ANSWER_H

#include <poll.h>
#include <sys/socket.h>

#include "../unit/fake_engine.h"
#include "memory_segment.h"

static struct rp_ring ring;
static uint8_t answer[4096];
static size_t answer_bytes;
static int fds[3]; /* that come with the answer */
static unsigned fd_count;

static int socket_fd; /* of a file in memory, which counts who has it */
static bool answered, hung_up;

int __wrap_rp_socket_connect(const char *run_dir, const char *run, struct rp_error *error);
int __wrap_rp_socket_connect(const char *run_dir, const char *run, struct rp_error *error)
{
    (void)run_dir, (void)run, (void)error;
    answered = hung_up = false;
    return socket_fd = open(fuzz_file("socket", "", 0), O_RDWR);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    (void)flags;
    FUZZ_REQUIRE(fd == socket_fd && fuzz_opened(fd) == 1);
    ssize_t bytes = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++)
        bytes += (ssize_t)message->msg_iov[i].iov_len;
    return bytes;
}

ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags)
{
    (void)data, (void)flags;
    FUZZ_REQUIRE(fd == socket_fd && fuzz_opened(fd) == 1);
    errno = EPIPE;
    return hung_up ? -1 : (ssize_t)bytes;
}

static void give_descriptors(struct msghdr *message)
{
    struct cmsghdr *entry = CMSG_FIRSTHDR(message);
    message->msg_controllen = fd_count ? CMSG_SPACE(fd_count * sizeof *fds) : 0;
    if (fd_count == 0)
        return;
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(fd_count * sizeof *fds);
    memcpy(CMSG_DATA(entry), fds, fd_count * sizeof *fds);
    for (unsigned i = 0; i < fd_count; i++)
        (void)dup(fds[i]); /* has the same number */
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    (void)flags;
    FUZZ_REQUIRE(fd == socket_fd && fuzz_opened(fd) == 1 && message->msg_iovlen == 1);
    message->msg_flags = 0;
    if (answered) { /* nothing follows it */
        message->msg_controllen = 0;
        errno = EAGAIN;
        return hung_up ? 0 : -1;
    }
    answered = true;
    FUZZ_REQUIRE(message->msg_iov->iov_len >= answer_bytes);
    memcpy(message->msg_iov->iov_base, answer, answer_bytes);
    give_descriptors(message);
    return (ssize_t)answer_bytes;
}

int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms)
{
    (void)timeout_ms;
    FUZZ_REQUIRE(count == 1 && entries->fd == socket_fd && fuzz_opened(socket_fd) == 1);
    entries->revents = (short)((answered && !hung_up ? 0 : POLLIN) | (hung_up ? POLLHUP : 0));
    entries->revents &= (short)(entries->events | POLLHUP);
    return entries->revents != 0;
}

FUZZ void answer_start(void)
{
    struct rp_geometry geometry = fake_geometry(4, 0);
    FUZZ_REQUIRE(rp_ring_create(&ring, &geometry, 1, (struct rp_hash128){7, 0}, 1, 0, NULL) == 0);
    FUZZ_REQUIRE(rp_ring_attach_trainer(&ring, 0, 0, NULL) == 0);
    fake_write_batch(&ring, 0, 1);
    rp_ring_publish(&ring, 1);
}

FUZZ void choose_fds(unsigned mode)
{
    fds[0] = mode % 4 == 3 ? ring.seats[0].control.fd : ring.data.fd;
    fds[1] = mode % 4 == 3 ? ring.data.fd : ring.seats[0].control.fd;
    fd_count = mode % 4 < 2 ? 0 : 2;
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

/* A long answer comes with its body in a descriptor, the last of all. */
FUZZ void move_body(void)
{
    size_t head_bytes = rp_min_u64(answer_bytes, sizeof(struct rp_reply));
    const char *path = fuzz_file("body", answer + head_bytes, answer_bytes - head_bytes);
    fds[fd_count++] = open(path, O_RDONLY);
    answer_bytes = head_bytes;
}

#endif
