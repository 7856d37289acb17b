/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c — a Python process that has the libraries: for tokenizers, and for the forms of files
 * that are encoded. It is not trusted: its answers are checked on arrival. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "convert/convert.h"
#include "convert/value_type.h"
#include "interrupt.h"

#define PROTOCOL 5u
#define HELLO_BYTES 68u
#define FRAME_BYTES 68u
#define DOCUMENTS_MAX (1u << 20) /* in a frame */
#define MESSAGE_BYTES_MAX 4096u

/* The codes of a refusal, as the worker numbers them. */
static const int refusal_codes[] = {RP_E_FORMAT, RP_E_RESOURCE, RP_E_USAGE, RP_E_CORRUPT,
                                    RP_E_VOCABULARY};

/* The worker ended before it answered. */
static int fail_child(struct rp_worker *worker, struct rp_error *error)
{
    int status = 0;
    shutdown(worker->socket, SHUT_RDWR);
    if (rp_interrupted()) /* it may be busy for long, and its result is not needed */
        kill(worker->child, SIGKILL);
    waitpid(worker->child, &status, 0);
    worker->child = 0;
    int code = rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
    if (code < 0)
        return code;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return rp_fail(error, -RP_E_RESOURCE, "install python3, or set RINGPACK_PYTHON to it",
                       "%s: python3 could not be started", worker->subject);
    return rp_fail(error, -RP_E_GONE, "its output above has the reason",
                   "%s: the worker process ended in the middle (wait status %d)", worker->subject,
                   status);
}

/* Wait in slices, so that Ctrl-C is noticed wherever it falls between a check and a call. */
static bool wait_for(struct rp_worker *worker, short events)
{
    struct pollfd wanted = {.fd = worker->socket, .events = events};
    while (!rp_interrupted()) {
        int ready = poll(&wanted, 1, 100);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return false;
    }
    return false;
}

int rp_worker_send(struct rp_worker *worker, const void *data, size_t bytes, struct rp_error *error)
{
    for (size_t done = 0; done < bytes;) {
        if (!wait_for(worker, POLLOUT))
            return fail_child(worker, error);
        ssize_t put = send(worker->socket, (const char *)data + done, bytes - done,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno != EINTR && errno != EAGAIN)
            return fail_child(worker, error);
        done += put > 0 ? (size_t)put : 0;
    }
    return 0;
}

static int receive_all(struct rp_worker *worker, void *data, size_t bytes, struct rp_error *error)
{
    for (size_t done = 0; done < bytes;) {
        if (!wait_for(worker, POLLIN))
            return fail_child(worker, error);
        ssize_t got = recv(worker->socket, (char *)data + done, bytes - done, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
            return fail_child(worker, error);
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

static int fail_protocol(struct rp_worker *worker, struct rp_error *error)
{
    return rp_fail(error, -RP_E_PROTOCOL,
                   "is the ringpack Python package of the same version installed?",
                   "%s: the worker process speaks another protocol", worker->subject);
}

/* A refusal is a message and a hint, each as long as the frame says. */
static int receive_refusal(struct rp_worker *worker, const uint8_t head[FRAME_BYTES],
                           struct rp_error *error)
{
    uint32_t place = rp_load_u32(head + 4), message_bytes = rp_load_u32(head + 8),
             hint_bytes = rp_load_u32(head + 12);
    char message[MESSAGE_BYTES_MAX + 1], hint[MESSAGE_BYTES_MAX + 1];
    if (place >= RP_ARRAY_COUNT(refusal_codes) || message_bytes > MESSAGE_BYTES_MAX ||
        hint_bytes > MESSAGE_BYTES_MAX)
        return fail_protocol(worker, error);
    int code = receive_all(worker, message, message_bytes, error);
    if (code == 0)
        code = receive_all(worker, hint, hint_bytes, error);
    if (code < 0)
        return code;
    message[message_bytes] = hint[hint_bytes] = 0;
    return rp_fail(error, -refusal_codes[place], hint_bytes ? hint : RP_CONVERT_MEND, "%s",
                   message);
}

/* The runs of trained tokens of every document: they keep their rules, whoever sent them. */
static int check_runs(struct rp_worker *worker, const struct rp_frame *frame, uint64_t count,
                      struct rp_error *error)
{
    const struct rp_span *runs = frame->runs;
    for (uint32_t i = 0; i < frame->documents; i++) {
        if (frame->run_counts[i] > count)
            return fail_protocol(worker, error);
        count -= frame->run_counts[i];
        for (uint32_t k = 0; k < frame->run_counts[i]; k++, runs++)
            if (runs->begin >= runs->end || runs->end > frame->lengths[i] ||
                (k > 0 && runs->begin <= runs[-1].end))
                return fail_protocol(worker, error);
    }
    return count == 0 ? 0 : fail_protocol(worker, error);
}

static int receive_runs(struct rp_worker *worker, struct rp_frame *frame, uint64_t count,
                        struct rp_error *error)
{
    frame->run_counts = calloc((size_t)frame->documents + 1, sizeof *frame->run_counts);
    frame->runs = calloc((size_t)count + 1, sizeof *frame->runs);
    if (!frame->run_counts || !frame->runs)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for %" PRIu64 " runs of tokens",
                       worker->subject, count);
    int code = receive_all(worker, frame->run_counts, frame->documents * sizeof *frame->run_counts,
                           error);
    if (code == 0)
        code = receive_all(worker, frame->runs, (size_t)count * sizeof *frame->runs, error);
    return code < 0 ? code : check_runs(worker, frame, count, error);
}

static int receive_side(struct rp_worker *worker, struct rp_frame *frame, uint32_t k, uint64_t ids,
                        struct rp_error *error)
{
    struct rp_entries *entries = &frame->sides[k];
    struct rp_side_type type = {0};
    uint8_t head[16];
    char descr[9] = "";
    uint32_t width = 0;
    int code = receive_all(worker, head, sizeof head, error);
    if (code < 0)
        return code;
    memcpy(descr, head, 8);
    if (!rp_value_type(descr, false, &type, &width) || !type.dtype)
        return rp_fail(error, -RP_E_FORMAT,
                       "choose a type that a column has: --side-column NAME=FIELD:TYPE",
                       "%s: values of type %s", worker->subject, descr);
    code = rp_value_type_repeat(&type, rp_load_u32(head + 8), width, worker->subject, error);
    if (code < 0 || type.count == 0)
        return code < 0 ? code : fail_protocol(worker, error);
    *entries = (struct rp_entries){.type = type,
                                   .is_number = rp_load_u32(head + 12) == 0,
                                   .count = rp_load_u32(head + 12) ? ids : frame->documents};
    size_t bytes = (size_t)(entries->count * entries->type.bytes);
    entries->at = frame->side_data[k] = malloc(bytes + 1);
    return entries->at ? receive_all(worker, frame->side_data[k], bytes, error)
                       : rp_fail(error, -ENOMEM, NULL, "%s: no memory for its side columns",
                                 worker->subject);
}

static int receive_sides(struct rp_worker *worker, struct rp_frame *frame, uint64_t ids,
                         struct rp_error *error)
{
    int code = frame->side_count <= RP_SIDES_MAX ? 0 : fail_protocol(worker, error);
    for (uint32_t k = 0; k < frame->side_count && code == 0; k++)
        code = receive_side(worker, frame, k, ids, error);
    return code;
}

static int receive_documents(struct rp_worker *worker, struct rp_frame *frame, uint64_t runs,
                             struct rp_error *error)
{
    uint64_t ids = 0;
    if (frame->documents > DOCUMENTS_MAX || (frame->width != 2 && frame->width != 4))
        return fail_protocol(worker, error);
    frame->lengths = calloc((size_t)frame->documents + 1, sizeof *frame->lengths);
    if (!frame->lengths)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for %" PRIu32 " documents",
                       worker->subject, frame->documents);
    int code = receive_all(worker, frame->lengths, frame->documents * sizeof *frame->lengths,
                           error);
    for (uint32_t i = 0; i < frame->documents; i++)
        ids += frame->lengths[i];
    if (code < 0)
        return code;
    if (ids > INT32_MAX)
        return rp_fail(error, -RP_E_FORMAT, "cut it into several documents",
                       "%s: a document of more than %d tokens", worker->subject, INT32_MAX);
    frame->ids = malloc((size_t)ids * frame->width + 1);
    if (!frame->ids)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for %" PRIu64 " tokens",
                       worker->subject, ids);
    code = receive_all(worker, frame->ids, (size_t)ids * frame->width, error);
    if (code == 0 && frame->origin.name[0])
        code = runs <= ids ? receive_runs(worker, frame, runs, error)
                           : fail_protocol(worker, error);
    return code == 0 ? receive_sides(worker, frame, ids, error) : code;
}

int rp_worker_receive(struct rp_worker *worker, struct rp_frame *frame, struct rp_error *error)
{
    uint8_t head[FRAME_BYTES];
    *frame = (struct rp_frame){0};
    int code = receive_all(worker, head, sizeof head, error);
    if (code < 0)
        return code;
    *frame = (struct rp_frame){
        .documents = rp_load_u32(head + 4),
        .width = rp_load_u32(head + 8),
        .share = rp_load_u32(head + 12),
        .dropped = rp_load_u32(head + 16),
        .special = rp_load_u32(head + 20),
        .bad = rp_load_u32(head + 28),
        .side_count = rp_load_u32(head + 64),
    };
    uint64_t runs = rp_load_u32(head + 24);
    memcpy(frame->origin.name, head + 32, RP_MASK_NAME_BYTES);
    if (frame->origin.name[RP_MASK_NAME_BYTES - 1])
        return fail_protocol(worker, error);
    uint32_t kind = rp_load_u32(head);
    if (kind == RP_FRAME_REFUSED)
        return receive_refusal(worker, head, error);
    if (kind < RP_FRAME_TEXTS || kind > RP_FRAME_CHATS)
        return fail_protocol(worker, error);
    frame->kind = (enum rp_frame_kind)kind;
    if (kind != RP_FRAME_END)
        return receive_documents(worker, frame, runs, error);
    frame->documents = 0;
    return 0;
}

void rp_frame_release(struct rp_frame *frame)
{
    free(frame->lengths);
    free(frame->ids);
    free(frame->run_counts);
    free(frame->runs);
    for (uint32_t k = 0; k < RP_SIDES_MAX; k++)
        free(frame->side_data[k]);
    *frame = (struct rp_frame){0};
}

/* The hello is as long as a frame, which it is if it is a refusal. */
static int receive_hello(struct rp_worker *worker, struct rp_error *error)
{
    uint8_t hello[HELLO_BYTES];
    RP_STATIC_ASSERT(sizeof hello == FRAME_BYTES, "the protocol");
    int code = receive_all(worker, hello, sizeof hello, error);
    if (code == 0 && rp_load_u32(hello) == RP_FRAME_REFUSED)
        return receive_refusal(worker, hello, error);
    if (code < 0)
        return code;
    if (memcmp(hello, "RPCW", 4) || rp_load_u32(hello + 4) != PROTOCOL)
        return fail_protocol(worker, error);
    worker->vocab_size = rp_load_u64(hello + 8);
    worker->eos = (int64_t)rp_load_u64(hello + 16);
    worker->bos = (int64_t)rp_load_u64(hello + 24);
    return 0;
}

int rp_worker_open(struct rp_worker *worker, const struct rp_tokenizer_choice *choice,
                   uint32_t threads, struct rp_error *error)
{
    int pair[2];
    char threads_text[16];
    snprintf(threads_text, sizeof threads_text, "%" PRIu32, threads);
    *worker = (struct rp_worker){.socket = -1, .eos = -1, .bos = -1};
    snprintf(worker->subject, sizeof worker->subject, "%s", choice->name);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return rp_fail(error, -errno, NULL, "cannot make a socket pair: %s", strerror(errno));
    worker->socket = pair[0];
    const char *arguments[RP_WORKER_WORDS] = {choice->name,
                                              choice->eos ? choice->eos : "",
                                              choice->bos ? choice->bos : "",
                                              threads_text,
                                              choice->special_tokens ? "tokens" : "text",
                                              choice->skip_bad ? "skip" : "refuse"};
    int code = rp_worker_spawn(&worker->child, arguments, pair[1], pair[1], error);
    close(pair[1]);
    if (code == 0)
        code = receive_hello(worker, error);
    if (code < 0)
        rp_worker_close(worker, true);
    return code;
}

void rp_worker_close(struct rp_worker *worker, bool at_once)
{
    if (worker->socket >= 0)
        close(worker->socket);
    if (worker->child && at_once)
        kill(worker->child, SIGKILL);
    if (worker->child) /* it ends at the end of its stdin */
        waitpid(worker->child, NULL, 0);
    *worker = (struct rp_worker){.socket = -1, .eos = -1, .bos = -1};
}
