/* SPDX-License-Identifier: Apache-2.0 */
#include "client/message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/core.h"
#include "shm/socket.h"

int rp_client_fail_text(struct rp_error *error, int code, const char *prefix, const char *text)
{
    const char *newline = strchrnul(text, '\n');
    if (newline == text)
        return rp_fail(error, code, RP_HINT_LOG, "%srefused without a reason", prefix);
    return rp_fail(error, code, *newline ? newline + 1 : NULL, "%s%.*s", prefix,
                   (int)(newline - text), text);
}

void rp_client_close_reply(struct rp_client_reply *reply)
{
    for (int i = 0; i < 2; i++)
        if (reply->fds[i] >= 0)
            close(reply->fds[i]);
    free(reply->buffer);
}

static int check_reply(struct rp_client_reply *reply, uint64_t bytes, struct rp_error *error)
{
    if (bytes < sizeof reply->head)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_VERSION,
                       "the engine's reply has %" PRIu64 " bytes", bytes);
    memcpy(&reply->head, reply->buffer, sizeof reply->head);
    if (reply->head.magic != RP_MESSAGE_MAGIC)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_VERSION,
                       "the peer's reply is not of ringpack's protocol");
    if (reply->head.abi_version != RP_ABI_VERSION)
        return rp_fail(error, -RP_E_VERSION, RP_HINT_VERSION,
                       "the engine's memory layout is %" PRIu32 ", ours is %u",
                       reply->head.abi_version, RP_ABI_VERSION);
    if (reply->head.text_bytes != bytes - sizeof reply->head ||
        reply->head.contract_bytes > reply->head.text_bytes)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_VERSION,
                       "the engine's reply says %" PRIu32 " bytes of text, %" PRIu32
                       " of them a contract; %" PRIu64 " found",
                       reply->head.text_bytes, reply->head.contract_bytes,
                       bytes - sizeof reply->head);
    reply->text = (char *)reply->buffer + sizeof reply->head;
    reply->text[reply->head.text_bytes] = '\0';
    return 0;
}

int rp_client_receive_reply(int fd, uint32_t kind, int timeout_ms, struct rp_client_reply *reply,
                            struct rp_error *error)
{
    *reply = (struct rp_client_reply){.fds = {-1, -1}};
    int64_t bytes = rp_socket_receive_message(fd, &reply->buffer, reply->fds, timeout_ms, error);
    int code = bytes < 0 ? (int)bytes : 0;
    if (bytes == 0)
        code = rp_fail(error, -RP_E_GONE, RP_HINT_LOG, "the engine hung up before it replied");
    if (code == 0)
        code = check_reply(reply, (uint64_t)bytes, error);
    if (code == 0 && reply->head.kind == RP_REPLY_REFUSED)
        code = rp_client_fail_text(error, reply->head.code < 0 ? reply->head.code : -RP_E_PROTOCOL,
                                   "", reply->text);
    else if (code == 0 && reply->head.kind != kind)
        code = rp_fail(error, -RP_E_PROTOCOL, RP_HINT_VERSION,
                       "a reply of kind %" PRIu32 " expected, %" PRIu32 " found", kind,
                       reply->head.kind);
    if (code < 0)
        rp_client_close_reply(reply);
    return code;
}

struct rp_request rp_client_request(uint32_t kind, const char *run)
{
    struct rp_request request = {.magic = RP_MESSAGE_MAGIC,
                                 .abi_version = RP_ABI_VERSION,
                                 .kind = kind,
                                 .next_row = RP_NEXT_ROW_ANY,
                                 .step_row = RP_NEXT_ROW_ANY,
                                 .pid = getpid()};
    strncpy(request.run, run, sizeof request.run - 1);
    return request;
}
