/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c — from text to tokens: bytes are done here, a tokenizer.json by a child process
 * that runs the `tokenizers` package (tools/python/ringpack/tokenizer_worker.py has the protocol).
 *
 * Texts are sent in batches, so that the package can use every core; a batch is written whole
 * before its reply is read, and read whole before the next, so the two processes cannot block each
 * other. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "convert/convert.h"
#include "interrupt.h"

#define BYTES_VOCAB 257u /* 256 bytes and EOS */
#define BYTES_EOS 256
#define BATCH_BYTES (4u << 20)
#define BATCH_TEXTS 4096u
#define WORKER "tokenizer_worker.py"
#define HELLO_BYTES 20u

/* Why the child ended, in its own exit codes. */
static int fail_child(struct rp_tokenizer *tokenizer, struct rp_error *error)
{
    int status = 0;
    shutdown(tokenizer->socket, SHUT_RDWR);
    if (rp_interrupted()) /* it may be busy for long, and what it makes is not wanted */
        kill(tokenizer->child, SIGKILL);
    waitpid(tokenizer->child, &status, 0);
    tokenizer->child = 0;
    int code = rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
    if (code < 0)
        return code;
    switch (WIFEXITED(status) ? WEXITSTATUS(status) : -1) {
    case 3:
        return rp_fail(error, -RP_E_RESOURCE,
                       "`pip install tokenizers`, or set RINGPACK_PYTHON to a Python that has it",
                       "%s: the Python package `tokenizers` is not there", tokenizer->path);
    case 4:
        return rp_fail(
            error, -RP_E_FORMAT, "give the tokenizer.json of a Hugging Face tokenizer, or `bytes`",
            "%s: expected a tokenizer.json, found something that `tokenizers` cannot read",
            tokenizer->path);
    case 5:
        return rp_fail(error, -RP_E_USAGE, "give the id, or a token of this tokenizer, to --eos",
                       "%s: its vocabulary does not hold the token given to --eos",
                       tokenizer->path);
    case 127:
        return rp_fail(error, -RP_E_RESOURCE, "install python3, or set RINGPACK_PYTHON to it",
                       "%s: python3 could not be started", tokenizer->path);
    default:
        return rp_fail(error, -RP_E_GONE, "what it printed above says why",
                       "%s: the tokenizer process ended in the middle (wait status %d)",
                       tokenizer->path, status);
    }
}

/* Wait in slices, so that Ctrl-C is noticed wherever it falls between a check and a call. */
static bool wait_for(struct rp_tokenizer *tokenizer, short events)
{
    struct pollfd wanted = {.fd = tokenizer->socket, .events = events};
    while (!rp_interrupted()) {
        int ready = poll(&wanted, 1, 100);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return false;
    }
    return false;
}

static int send_all(struct rp_tokenizer *tokenizer, const void *data, size_t bytes,
                    struct rp_error *error)
{
    for (size_t done = 0; done < bytes;) {
        if (!wait_for(tokenizer, POLLOUT))
            return fail_child(tokenizer, error);
        ssize_t put = send(tokenizer->socket, (const char *)data + done, bytes - done,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno != EINTR && errno != EAGAIN)
            return fail_child(tokenizer, error);
        done += put > 0 ? (size_t)put : 0;
    }
    return 0;
}

static int receive_all(struct rp_tokenizer *tokenizer, void *data, size_t bytes,
                       struct rp_error *error)
{
    for (size_t done = 0; done < bytes;) {
        if (!wait_for(tokenizer, POLLIN))
            return fail_child(tokenizer, error);
        ssize_t got = recv(tokenizer->socket, (char *)data + done, bytes - done, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
            return fail_child(tokenizer, error);
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* The worker lies beside the program in a wheel, and in the source tree above it in a build; NULL:
 * let Python find it as a module of the installed package. */
static char *find_worker(void)
{
    char place[4096];
    ssize_t length = readlink("/proc/self/exe", place, sizeof place - 1);
    if (length <= 0)
        return NULL;
    place[length] = 0;
    static const char *const below[] = {"", "tools/python/ringpack/"};
    for (char *slash; (slash = strrchr(place, '/')) != NULL; *slash = 0) {
        for (size_t i = 0; i < RP_ARRAY_COUNT(below); i++) {
            slash[0] = 0;
            char *path = rp_format("%s/%s" WORKER, place, below[i]);
            if (!path || access(path, R_OK) == 0)
                return path;
            free(path);
        }
    }
    return NULL;
}

static int spawn_worker(struct rp_tokenizer *tokenizer, const char *eos, int peer,
                        struct rp_error *error)
{
    char *worker = find_worker();
    const char *chosen = getenv("RINGPACK_PYTHON");
    const char *python = chosen && *chosen ? chosen : "python3";
    const char *script[] = {python, worker, tokenizer->path, eos ? eos : "", NULL};
    const char *module[] = {python,          "-m",           "ringpack.tokenizer_worker",
                            tokenizer->path, eos ? eos : "", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, peer, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, peer, STDOUT_FILENO);
    int code = posix_spawnp(&tokenizer->child, python, &actions, NULL,
                            (char *const *)(uintptr_t)(worker ? script : module), environ);
    posix_spawn_file_actions_destroy(&actions);
    free(worker);
    if (code != 0) {
        tokenizer->child = 0;
        return rp_fail(error, -code,
                       "install python3, or set RINGPACK_PYTHON to a Python with `tokenizers`",
                       "%s: cannot start %s: %s", tokenizer->path, python, strerror(code));
    }
    return 0;
}

static int open_child(struct rp_tokenizer *tokenizer, const char *eos, struct rp_error *error)
{
    int pair[2];
    int file = rp_file_open_read(tokenizer->path, NULL, error);
    if (file < 0)
        return file;
    close(file);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return rp_fail(error, -errno, NULL, "cannot make a socket pair: %s", strerror(errno));
    tokenizer->socket = pair[0];
    int code = spawn_worker(tokenizer, eos, pair[1], error);
    close(pair[1]);
    uint8_t hello[HELLO_BYTES];
    if (code == 0)
        code = receive_all(tokenizer, hello, sizeof hello, error);
    if (code < 0)
        return code;
    if (memcmp(hello, "RPTK", 4) || rp_load_u32(hello + 4) != 1)
        return rp_fail(error, -RP_E_PROTOCOL,
                       "is the ringpack Python package of the same version installed?",
                       "%s: the tokenizer process speaks another protocol", tokenizer->path);
    tokenizer->vocab_size = rp_load_u32(hello + 8);
    tokenizer->eos = (int64_t)rp_load_u64(hello + 12);
    return 0;
}

int rp_tokenizer_open(struct rp_tokenizer *tokenizer, const char *name, const char *eos,
                      rp_sink *sink, void *context, struct rp_error *error)
{
    *tokenizer = (struct rp_tokenizer){
        .sink = sink, .context = context, .path = name, .socket = -1, .eos = -1};
    if (strcmp(name, "bytes")) {
        int code = open_child(tokenizer, eos, error);
        if (code < 0)
            rp_tokenizer_close(tokenizer);
        return code;
    }
    uint64_t value = BYTES_EOS;
    if (eos && (!rp_text_u64(eos, &value) || value > INT32_MAX))
        return rp_fail(error, -RP_E_USAGE,
                       "with the tokenizer `bytes`, --eos takes a number (default 256)",
                       "--eos: expected a token id, found `%s`", eos);
    tokenizer->vocab_size = rp_max_u64(BYTES_VOCAB, value + 1);
    tokenizer->eos = (int64_t)value;
    return 0;
}

static int reserve_ids(struct rp_tokenizer *tokenizer, size_t count, struct rp_error *error)
{
    if (count <= tokenizer->ids_capacity)
        return 0;
    uint32_t *ids = reallocarray(tokenizer->ids, count, sizeof *ids);
    if (!ids)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a document of %zu tokens", count);
    tokenizer->ids = ids;
    tokenizer->ids_capacity = count;
    return 0;
}

static int add_bytes(struct rp_tokenizer *tokenizer, const char *text, size_t bytes,
                     struct rp_error *error)
{
    int code = reserve_ids(tokenizer, bytes, error);
    if (code < 0)
        return code;
    for (size_t i = 0; i < bytes; i++)
        tokenizer->ids[i] = (uint8_t)text[i];
    return tokenizer->sink(tokenizer->context, tokenizer->ids, bytes, error);
}

static int add_to_batch(struct rp_tokenizer *tokenizer, const char *text, size_t bytes,
                        struct rp_error *error)
{
    size_t needed = tokenizer->batch_bytes + 4 + bytes;
    if (needed > tokenizer->batch_capacity) {
        size_t capacity = (size_t)rp_max_u64(2 * needed, BATCH_BYTES);
        uint8_t *batch = realloc(tokenizer->batch, capacity);
        if (!batch)
            return rp_fail(error, -ENOMEM, "cut it with --split-bytes",
                           "no memory for %zu bytes of text", capacity);
        tokenizer->batch = batch;
        tokenizer->batch_capacity = capacity;
    }
    rp_store_u32(tokenizer->batch + tokenizer->batch_bytes, (uint32_t)bytes);
    memcpy(tokenizer->batch + tokenizer->batch_bytes + 4, text, bytes);
    tokenizer->batch_bytes = needed;
    tokenizer->batch_texts++;
    return 0;
}

int rp_tokenizer_add(struct rp_tokenizer *tokenizer, const char *text, size_t bytes,
                     struct rp_error *error)
{
    if (!tokenizer->child)
        return add_bytes(tokenizer, text, bytes, error);
    if (bytes > INT32_MAX)
        return rp_fail(error, -RP_E_FORMAT, "cut it with --split-bytes 1000000",
                       "a document of %zu bytes: a tokenizer takes at most %d at a time", bytes,
                       INT32_MAX);
    int code = add_to_batch(tokenizer, text, bytes, error);
    if (code == 0 &&
        (tokenizer->batch_bytes >= BATCH_BYTES || tokenizer->batch_texts == BATCH_TEXTS))
        code = rp_tokenizer_flush(tokenizer, error);
    return code;
}

static int receive_document(struct rp_tokenizer *tokenizer, uint32_t *count, struct rp_error *error)
{
    int code = receive_all(tokenizer, count, sizeof *count, error);
    if (code == 0)
        code = reserve_ids(tokenizer, *count, error);
    return code < 0
               ? code
               : receive_all(tokenizer, tokenizer->ids, *count * sizeof *tokenizer->ids, error);
}

int rp_tokenizer_flush(struct rp_tokenizer *tokenizer, struct rp_error *error)
{
    uint32_t texts = tokenizer->batch_texts, replied = 0;
    if (texts == 0)
        return 0;
    int code = send_all(tokenizer, &texts, sizeof texts, error);
    if (code == 0)
        code = send_all(tokenizer, tokenizer->batch, tokenizer->batch_bytes, error);
    if (code == 0)
        code = receive_all(tokenizer, &replied, sizeof replied, error);
    tokenizer->batch_texts = 0;
    tokenizer->batch_bytes = 0;
    if (code == 0 && replied != texts)
        return rp_fail(error, -RP_E_PROTOCOL, NULL,
                       "%s: sent %" PRIu32 " texts, got %" PRIu32 " back", tokenizer->path, texts,
                       replied);
    for (uint32_t i = 0; i < texts && code == 0; i++) {
        uint32_t count;
        code = receive_document(tokenizer, &count, error);
        if (code == 0 && count > 0)
            code = tokenizer->sink(tokenizer->context, tokenizer->ids, count, error);
    }
    return code;
}

void rp_tokenizer_close(struct rp_tokenizer *tokenizer)
{
    if (tokenizer->socket >= 0)
        close(tokenizer->socket);
    if (tokenizer->child) /* it ends at the end of its stdin */
        waitpid(tokenizer->child, NULL, 0);
    free(tokenizer->batch);
    free(tokenizer->ids);
    *tokenizer = (struct rp_tokenizer){.socket = -1};
}
