/* SPDX-License-Identifier: Apache-2.0 */
/* question.c — what is asked of an engine by programs that take no batches. */
#include "client/question.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/message.h"
#include "ringpack/client.h"
#include "shm/socket.h"

/* Cut the note off a text, and put it into *error, which says of a success what is to be said. */
static void take_note(const struct rp_client_reply *reply, struct rp_error *error)
{
    char *note = reply->head.code == RP_REPLY_CODE_NOTE ? strrchr(reply->text, '\n') : NULL;
    if (note)
        *note++ = '\0';
    if (error) {
        *error = (struct rp_error){0};
        snprintf(error->message, sizeof error->message, "%s", note ? note : "");
    }
}

/* Send a question on a new connection. Returns it, or the code of its failure; closes it after a
 * failure of its own. */
static int send_question(int fd, const char *run, uint32_t kind, const void *body,
                         size_t body_bytes, struct rp_error *error)
{
    if (fd < 0)
        return fd;
    struct rp_request request = rp_client_request(kind, run);
    request.state_bytes = (uint32_t)body_bytes;
    int code = rp_socket_send(fd, &request, sizeof request, body, body_bytes, NULL, 0, error);
    if (code == 0)
        return fd;
    close(fd);
    return code;
}

/* The text of the answer, which the caller frees. */
static int receive_answer(int fd, int wait_ms, char **text_out, struct rp_error *error)
{
    struct rp_client_reply reply;
    int code = rp_client_receive_reply(fd, RP_REPLY_TEXT, wait_ms, &reply, error);
    if (code < 0)
        return code;
    take_note(&reply, error);
    *text_out = strdup(reply.text);
    rp_client_close_reply(&reply);
    return *text_out ? 0 : rp_fail(error, -ENOMEM, NULL, "the engine's reply: out of memory");
}

static int ask_with(const char *run_dir, const char *run, uint32_t kind, const void *body,
                    size_t body_bytes, char **text_out, struct rp_error *error)
{
    *text_out = NULL;
    run = run ? run : "default";
    int fd = rp_socket_connect(run_dir, run, error);
    fd = send_question(fd, run, kind, body, body_bytes, error);
    if (fd < 0)
        return fd;
    /* a checkpoint takes its time; a dead engine hangs up */
    int code = receive_answer(fd, -1, text_out, error);
    close(fd);
    return code;
}

static int ask(const char *run_dir, const char *run, uint32_t kind, char **text_out,
               struct rp_error *error)
{
    return ask_with(run_dir, run, kind, NULL, 0, text_out, error);
}

int rp_run_locate(const char *run_dir, const char *run, const struct rp_provenance *documents,
                  size_t count, char **text_out, struct rp_error *error)
{
    *text_out = NULL;
    if (count > RP_MESSAGE_BYTES_MAX / 2 / sizeof *documents)
        return rp_fail(error, -RP_E_USAGE, "ask for fewer documents at once",
                       "%zu documents do not fit in a message", count);
    return ask_with(run_dir, run, RP_REQUEST_LOCATE, documents, count * sizeof *documents, text_out,
                    error);
}

int rp_run_stat(const char *run_dir, const char *run, char **json_out, struct rp_error *error)
{
    return ask(run_dir, run, RP_REQUEST_STAT, json_out, error);
}

int rp_question_stat(const char *run_dir, const char *run, uint64_t patience_ns,
                     struct rp_error *error)
{
    int fd = rp_socket_connect_within(run_dir, run, patience_ns, error);
    return send_question(fd, run, RP_REQUEST_STAT, NULL, 0, error);
}

int rp_question_answer(int fd, int wait_ms, char **json_out, struct rp_error *error)
{
    *json_out = NULL;
    return receive_answer(fd, wait_ms, json_out, error);
}

int rp_run_checkpoint(const char *run_dir, const char *run, char **path_out, struct rp_error *error)
{
    return ask(run_dir, run, RP_REQUEST_CHECKPOINT, path_out, error);
}

int rp_run_stop(const char *run_dir, const char *run, struct rp_error *error)
{
    char *text;
    int code = ask(run_dir, run, RP_REQUEST_STOP, &text, error);
    free(text);
    return code;
}

void rp_text_free(char *text)
{
    free(text);
}

const char *rp_version(void)
{
    return RP_VERSION;
}
