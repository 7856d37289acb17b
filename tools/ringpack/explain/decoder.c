/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c — from ids to text: bytes are done here, a tokenizer.json by a worker process with the
 * `tokenizers` package (tools/python/ringpack/_convert/worker.py has the protocol). */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "convert/convert.h"
#include "explain/explain.h"

#define TEXT_BYTES_MAX (1u << 30)
#define HELLO "RPDW"

static int fail_worker(struct rp_error *error)
{
    return rp_fail(error, -RP_E_GONE,
                   "its output above has the reason; without --tokenizer, ids are shown",
                   "the worker process that decodes tokens ended");
}

static int send_all(const struct rp_decoder *decoder, const void *data, size_t bytes,
                    struct rp_error *error)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put = send(decoder->socket, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if (put < 0 && errno != EINTR)
            return fail_worker(error);
        done += put > 0 ? (size_t)put : 0;
    }
    return 0;
}

static int receive_all(const struct rp_decoder *decoder, void *data, size_t bytes,
                       struct rp_error *error)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = recv(decoder->socket, (char *)data + done, bytes - done, 0);
        if (got == 0 || (got < 0 && errno != EINTR))
            return fail_worker(error);
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* A text: u32 bytes, and the bytes. The caller frees it. */
static int receive_text(const struct rp_decoder *decoder, char **text, size_t *bytes,
                        struct rp_error *error)
{
    uint8_t head[4];
    *text = NULL;
    int code = receive_all(decoder, head, sizeof head, error);
    if (code < 0)
        return code;
    *bytes = rp_load_u32(head);
    if (*bytes > TEXT_BYTES_MAX)
        return fail_worker(error);
    *text = malloc(*bytes + 1);
    if (!*text)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a text of %zu bytes", *bytes);
    (*text)[*bytes] = '\0';
    code = receive_all(decoder, *text, *bytes, error);
    if (code < 0) {
        free(*text);
        *text = NULL;
    }
    return code;
}

/* The worker begins with HELLO, or with why it cannot. */
static int receive_hello(const struct rp_decoder *decoder, const char *tokenizer,
                         struct rp_error *error)
{
    char *text;
    size_t bytes;
    int code = receive_text(decoder, &text, &bytes, error);
    if (code == 0 && strcmp(text, HELLO) != 0)
        code = rp_fail(error, -RP_E_RESOURCE,
                       "`pip install tokenizers`, or set RINGPACK_PYTHON to a Python that has it; "
                       "--tokenizer takes the tokenizer.json of a Hugging Face tokenizer, or bytes",
                       "%s: cannot decode with it: %.400s", tokenizer, text);
    free(text);
    return code;
}

int rp_decoder_open(struct rp_decoder *decoder, const char *tokenizer, struct rp_error *error)
{
    int pair[2];
    *decoder = (struct rp_decoder){.socket = -1};
    if (!strcmp(tokenizer, "bytes"))
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return rp_fail(error, -errno, NULL, "cannot make a socket pair: %s", strerror(errno));
    decoder->socket = pair[0];
    const char *arguments[RP_WORKER_WORDS] = {"--decode", tokenizer};
    int code = rp_worker_spawn(&decoder->child, arguments, pair[1], pair[1], error);
    close(pair[1]);
    if (code == 0)
        code = receive_hello(decoder, tokenizer, error);
    if (code < 0)
        rp_decoder_close(decoder);
    return code;
}

void rp_decoder_close(struct rp_decoder *decoder)
{
    if (decoder->socket >= 0)
        close(decoder->socket);
    if (decoder->child) /* it ends at the end of its stdin */
        waitpid(decoder->child, NULL, 0);
    *decoder = (struct rp_decoder){.socket = -1};
}

/* An id above 255 is no byte: the separator of documents, for instance. */
static int decode_bytes(const uint32_t *ids, uint32_t count, char **text_out,
                        struct rp_error *error)
{
    char *bytes = malloc((size_t)count + 1);
    for (uint32_t i = 0; bytes && i < count; i++)
        bytes[i] = ids[i] < 256 ? (char)ids[i] : '\n';
    *text_out = bytes ? rp_words_utf8(bytes, count) : NULL;
    free(bytes);
    return *text_out ? 0 : rp_fail(error, -ENOMEM, NULL, "no memory for %" PRIu32 " tokens", count);
}

int rp_decoder_decode(struct rp_decoder *decoder, const uint32_t *ids, uint32_t count,
                      char **text_out, struct rp_error *error)
{
    char *text;
    size_t bytes;
    if (decoder->socket < 0)
        return decode_bytes(ids, count, text_out, error);
    *text_out = NULL;
    int code = send_all(decoder, &count, sizeof count, error);
    if (code == 0)
        code = send_all(decoder, ids, (size_t)count * sizeof *ids, error);
    if (code == 0)
        code = receive_text(decoder, &text, &bytes, error);
    if (code < 0)
        return code;
    *text_out = rp_words_utf8(text, bytes);
    free(text);
    return *text_out ? 0
                     : rp_fail(error, -ENOMEM, NULL, "no memory for a text of %zu bytes", bytes);
}
