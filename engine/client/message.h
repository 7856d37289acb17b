/* SPDX-License-Identifier: Apache-2.0 */
/* message.h — a client's requests to an engine, and the checked replies. */
#ifndef RP_CLIENT_MESSAGE_H
#define RP_CLIENT_MESSAGE_H

#include "base/fail.h"
#include "shm/layout.h"

#define RP_HINT_LOG "look at the engine's log"
#define RP_HINT_VERSION "use the engine and the trainer library of one ringpack version"

/* A reply, checked: its head and its text, which has a NUL after it. */
struct rp_client_reply {
    struct rp_reply head;
    char *text;
    int fds[2];
    uint8_t *buffer;
};

/** A request without a body. */
struct rp_request rp_client_request(uint32_t kind, const char *run);
/** Receive a reply of kind `kind`. A reply of kind REFUSED becomes the error that it contains.
 * timeout_ms < 0 = wait without limit. */
RP_MUST_CHECK int rp_client_receive_reply(int fd, uint32_t kind, int timeout_ms,
                                          struct rp_client_reply *reply, struct rp_error *error);
void rp_client_close_reply(struct rp_client_reply *reply);

#endif
