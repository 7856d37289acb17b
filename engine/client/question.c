/* SPDX-License-Identifier: Apache-2.0 */
/* question.c — requests to an engine from programs that take no batches. */
#include "client/question.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/message.h"
#include "ringpack/client.h"
#include "shm/peer.h"
#include "shm/socket.h"

/* Periods of ten seconds to wait for a slow answer: two hours. */
#define TRIES_MAX 720u

/* Cut the note off a text, and put it into *error, which carries a note even on success. */
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

struct question {
    uint32_t kind; /* RP_REQUEST_ */
    const void *body;
    size_t bytes;
};

/* Send a question on a new connection. Returns it, or the code of its failure; closes it after a
 * failure of its own. */
static int send_question(int fd, const char *run, struct question question, struct rp_error *error)
{
    if (fd < 0)
        return fd;
    struct rp_request request = rp_client_request(question.kind, run);
    request.state_bytes = (uint32_t)question.bytes;
    const struct rp_message message = {.header = &request,
                                       .header_bytes = sizeof request,
                                       .body = question.body,
                                       .body_bytes = question.bytes};
    int code = rp_socket_send(fd, &message, error);
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

/* The state of a process as /proc has it: T is stopped. Unknown if it is in another container. */
static const char *state_of(pid_t pid)
{
    char path[32], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = pid > 0 ? fopen(path, "re") : NULL;
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    const char *name_end = strrchr(text, ')');
    char state = name_end && name_end[1] ? name_end[2] : '?';
    return state == 'T' || state == 't' ? "is stopped" : "is starting, or very busy";
}

static int fail_silent(int fd, const char *run, struct rp_error *error)
{
    pid_t pid = rp_peer_of(fd).pid;
    return rp_fail(error, -RP_E_TIMEOUT,
                   "`ringpack ps` says when it answers again; `kill -CONT PID` continues a process "
                   "that is stopped; its log has its last action",
                   "run `%s`: its engine is silent: no answer within %u s; process %d %s", run,
                   RP_QUESTION_PATIENCE_MS / 1000, (int)pid, state_of(pid));
}

/* Whether an engine that owes an answer answers another question. One that is ending has closed its
 * socket, and may still write to disks. */
static bool is_at_work(const char *run_dir, const char *run)
{
    struct rp_error error;
    char *text = NULL;
    int fd = rp_question_stat(run_dir, run, RP_QUESTION_PATIENCE_MS * UINT64_C(1000000), &error);
    if (fd < 0)
        return fd == -RP_E_GONE;
    int code = receive_answer(fd, RP_QUESTION_PATIENCE_MS, &text, &error);
    close(fd);
    free(text);
    return code != -RP_E_TIMEOUT;
}

/* The answer to a question of this kind. Status is answered at once. Other answers take their time,
 * as a checkpoint does: they are waited for as long as the engine is at work. */
static int await_answer(int fd, const char *run_dir, const char *run, uint32_t kind,
                        char **text_out, struct rp_error *error)
{
    for (unsigned tries = 0; tries < TRIES_MAX; tries++) {
        int code = receive_answer(fd, RP_QUESTION_PATIENCE_MS, text_out, error);
        if (code != -RP_E_TIMEOUT)
            return code;
        if (kind == RP_REQUEST_STAT || !is_at_work(run_dir, run))
            break;
    }
    return fail_silent(fd, run, error);
}

static int ask(const char *run_dir, const char *run, struct question question, char **text_out,
               struct rp_error *error)
{
    *text_out = NULL;
    run = run ? run : "default";
    int fd = rp_socket_connect(run_dir, run, error);
    fd = send_question(fd, run, question, error);
    if (fd < 0)
        return fd;
    int code = await_answer(fd, run_dir, run, question.kind, text_out, error);
    close(fd);
    return code;
}

int rp_run_locate(const char *run_dir, const char *run, const struct rp_provenance *documents,
                  size_t count, char **text_out, struct rp_error *error)
{
    *text_out = NULL;
    if (count > RP_MESSAGE_BYTES_MAX / 2 / sizeof *documents)
        return rp_fail(error, -RP_E_USAGE, "request fewer documents at once",
                       "%zu documents do not fit in a message", count);
    const struct question locate = {RP_REQUEST_LOCATE, documents, count * sizeof *documents};
    return ask(run_dir, run, locate, text_out, error);
}

int rp_run_stat(const char *run_dir, const char *run, char **json_out, struct rp_error *error)
{
    return ask(run_dir, run, (struct question){.kind = RP_REQUEST_STAT}, json_out, error);
}

int rp_question_stat(const char *run_dir, const char *run, uint64_t patience_ns,
                     struct rp_error *error)
{
    int fd = rp_socket_connect_within(run_dir, run, patience_ns, error);
    return send_question(fd, run, (struct question){.kind = RP_REQUEST_STAT}, error);
}

int rp_question_answer(int fd, int wait_ms, char **json_out, struct rp_error *error)
{
    *json_out = NULL;
    return receive_answer(fd, wait_ms, json_out, error);
}

int rp_question_weights(const char *run_dir, const char *run, const char *request, char **text_out,
                        struct rp_error *error)
{
    const struct question weights = {RP_REQUEST_WEIGHTS, request, strlen(request)};
    return ask(run_dir, run, weights, text_out, error);
}

int rp_run_checkpoint(const char *run_dir, const char *run, char **path_out, struct rp_error *error)
{
    return ask(run_dir, run, (struct question){.kind = RP_REQUEST_CHECKPOINT}, path_out, error);
}

int rp_run_stop(const char *run_dir, const char *run, struct rp_error *error)
{
    char *text;
    int code = ask(run_dir, run, (struct question){.kind = RP_REQUEST_STOP}, &text, error);
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
