/* SPDX-License-Identifier: Apache-2.0 */
/* receive.h — a message of a socket in a buffer of the test. */
#ifndef RP_TESTS_RECEIVE_H
#define RP_TESTS_RECEIVE_H

#include <stdlib.h>
#include <string.h>

#include "shm/socket.h"

/* As rp_socket_receive_message; a longer message is -RP_E_PROTOCOL. */
static inline int64_t receive_into(int fd, void *buffer, size_t capacity, int fds[2],
                                   int timeout_ms, struct rp_error *failure)
{
    uint8_t *message;
    int64_t bytes = rp_socket_receive_message(fd, &message, fds, timeout_ms, failure);
    if (bytes > (int64_t)capacity)
        bytes = -RP_E_PROTOCOL;
    else if (bytes > 0)
        memcpy(buffer, message, (size_t)bytes);
    free(message);
    return bytes;
}

#endif
