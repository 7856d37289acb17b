/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c — from text to tokens: bytes are done here, a tokenizer.json by a worker process
 * with the `tokenizers` package (tools/python/ringpack/_convert/worker.py has the protocol).
 *
 * Texts are sent in batches, so that the package can use every core; a batch is written whole
 * before its reply is read, and read whole before the next, so the two processes cannot block each
 * other. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "convert/convert.h"

#define BYTES_VOCAB 257u /* 256 bytes and EOS */
#define BYTES_EOS 256
#define BATCH_BYTES (4u << 20)
#define BATCH_TEXTS 4096u

static bool is_bytes(const struct rp_tokenizer *tokenizer)
{
    return !strcmp(tokenizer->choice.name, "bytes");
}

int rp_tokenizer_worker(struct rp_tokenizer *tokenizer, const char *subject, struct rp_error *error)
{
    struct rp_worker *worker = &tokenizer->worker;
    int code = 0;
    if (!worker->child)
        code = rp_worker_open(worker, &tokenizer->choice, tokenizer->threads, error);
    if (code == 0)
        snprintf(worker->subject, sizeof worker->subject, "%s", subject);
    return code;
}

static int open_file(struct rp_tokenizer *tokenizer, struct rp_error *error)
{
    int file = rp_file_open_read(tokenizer->choice.name, NULL, error);
    if (file < 0)
        return file;
    close(file);
    int code = rp_tokenizer_worker(tokenizer, tokenizer->choice.name, error);
    tokenizer->vocab_size = tokenizer->worker.vocab_size;
    tokenizer->eos = tokenizer->worker.eos;
    tokenizer->bos = tokenizer->worker.bos;
    return code;
}

static int take_id(const char *option, const char *text, int64_t *id, struct rp_error *error)
{
    uint64_t value = 0;
    if (text && (!rp_text_u64(text, &value) || value > INT32_MAX))
        return rp_fail(error, -RP_E_USAGE, "without --tokenizer, it takes a number",
                       "%s: expected a token id, found `%s`", option, text);
    *id = text ? (int64_t)value : *id;
    return 0;
}

int rp_tokenizer_open(struct rp_tokenizer *tokenizer, const struct rp_tokenizer_choice *choice,
                      uint32_t threads, rp_sink *sink, void *context, struct rp_error *error)
{
    *tokenizer = (struct rp_tokenizer){
        .sink = sink,
        .context = context,
        .choice = *choice,
        .threads = threads,
        .worker = {.socket = -1},
        .eos = -1,
        .bos = -1,
    };
    int code = 0;
    if (!is_bytes(tokenizer)) {
        code = open_file(tokenizer, error);
        if (code < 0)
            rp_tokenizer_close(tokenizer);
        return code;
    }
    tokenizer->eos = BYTES_EOS;
    code = take_id("--eos", choice->eos, &tokenizer->eos, error);
    if (code == 0)
        code = take_id("--bos", choice->bos, &tokenizer->bos, error);
    tokenizer->vocab_size = rp_max_u64(BYTES_VOCAB, (uint64_t)tokenizer->eos + 1);
    tokenizer->vocab_size = rp_max_u64(tokenizer->vocab_size, (uint64_t)(tokenizer->bos + 1));
    return code;
}

static int add_bytes(struct rp_tokenizer *tokenizer, const char *text, size_t bytes,
                     struct rp_error *error)
{
    if (!RP_GROW(tokenizer->ids, tokenizer->ids_capacity, bytes))
        return rp_fail(error, -ENOMEM, "cut it with --split-bytes",
                       "no memory for a document of %zu tokens", bytes);
    uint16_t *at = tokenizer->ids;
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)text[i];
    struct rp_ids ids = {.at = at, .width = sizeof *at, .count = bytes};
    return tokenizer->sink(tokenizer->context, &ids, error);
}

/* Make room for more bytes in the batch. */
static int reserve_batch(struct rp_tokenizer *tokenizer, size_t bytes, struct rp_error *error)
{
    size_t needed = (size_t)rp_max_u64(tokenizer->batch_bytes + bytes, BATCH_BYTES);
    if (!RP_GROW(tokenizer->batch, tokenizer->batch_capacity, needed))
        return rp_fail(error, -ENOMEM, "cut it with --split-bytes",
                       "no memory for %zu bytes of text", needed);
    return 0;
}

static void put_number(struct rp_tokenizer *tokenizer, size_t number)
{
    rp_store_u32(tokenizer->batch + tokenizer->batch_bytes, (uint32_t)number);
    tokenizer->batch_bytes += 4;
}

static void put_text(struct rp_tokenizer *tokenizer, const char *text, size_t bytes)
{
    put_number(tokenizer, bytes);
    memcpy(tokenizer->batch + tokenizer->batch_bytes, text, bytes);
    tokenizer->batch_bytes += bytes;
}

/* Texts of one kind, and lines of one file, make a batch. */
static int begin_batch(struct rp_tokenizer *tokenizer, enum rp_ask ask, const char *path,
                       struct rp_error *error)
{
    bool belongs = tokenizer->batch_ask == ask && tokenizer->batch_path == path;
    int code = belongs ? 0 : rp_tokenizer_flush(tokenizer, error);
    tokenizer->batch_ask = ask;
    tokenizer->batch_path = path;
    return code;
}

static int flush_full(struct rp_tokenizer *tokenizer, struct rp_error *error)
{
    tokenizer->batch_texts++;
    bool is_full = tokenizer->batch_bytes >= BATCH_BYTES || tokenizer->batch_texts == BATCH_TEXTS;
    return is_full ? rp_tokenizer_flush(tokenizer, error) : 0;
}

static int check_size(size_t bytes, struct rp_error *error)
{
    if (bytes <= INT32_MAX)
        return 0;
    return rp_fail(error, -RP_E_FORMAT, "cut it with --split-bytes 1000000",
                   "a document of %zu bytes: a tokenizer takes at most %d at a time", bytes,
                   INT32_MAX);
}

int rp_tokenizer_add(struct rp_tokenizer *tokenizer, const char *text, size_t bytes,
                     struct rp_error *error)
{
    int code = begin_batch(tokenizer, RP_ASK_TEXTS, NULL, error);
    if (code == 0 && is_bytes(tokenizer))
        return add_bytes(tokenizer, text, bytes, error);
    if (code == 0)
        code = check_size(bytes, error);
    if (code == 0)
        code = reserve_batch(tokenizer, 4 + bytes, error);
    if (code != 0)
        return code;
    put_text(tokenizer, text, bytes);
    return flush_full(tokenizer, error);
}

int rp_tokenizer_add_chat(struct rp_tokenizer *tokenizer, const struct rp_chat *chat,
                          struct rp_error *error)
{
    size_t path_bytes = strlen(chat->path);
    int code = begin_batch(tokenizer, chat->ask, chat->path, error);
    if (code == 0)
        code = check_size(chat->bytes, error);
    if (code == 0)
        code = reserve_batch(tokenizer, 12 + path_bytes + chat->bytes, error);
    if (code != 0)
        return code;
    if (tokenizer->batch_texts == 0)
        put_text(tokenizer, chat->path, path_bytes);
    put_number(tokenizer, chat->line);
    put_text(tokenizer, chat->text, chat->bytes);
    return flush_full(tokenizer, error);
}

int rp_frame_deliver(const struct rp_frame *frame, rp_sink *sink, void *context,
                     struct rp_error *error)
{
    const uint8_t *at = frame->ids;
    const struct rp_span *runs = frame->runs;
    struct rp_entries sides[RP_SIDES_MAX];
    int code = 0;
    memcpy(sides, frame->sides, sizeof sides);
    for (uint32_t i = 0; i < frame->documents && code == 0; i++) {
        struct rp_ids ids = {.at = at,
                             .width = frame->width,
                             .count = frame->lengths[i],
                             .sides = frame->side_count ? sides : NULL,
                             .has_ends = frame->kind == RP_FRAME_CHATS};
        for (uint32_t k = 0; k < frame->side_count; k++)
            sides[k].count = sides[k].is_number ? 1 : ids.count;
        if (frame->run_counts)
            ids.trained = (struct rp_trained){&frame->origin, runs, frame->run_counts[i]};
        code = sink(context, &ids, error);
        runs += ids.trained.count;
        at += (size_t)frame->lengths[i] * frame->width;
        for (uint32_t k = 0; k < frame->side_count; k++)
            sides[k].at += sides[k].count * sides[k].type.bytes;
    }
    return code;
}

int rp_tokenizer_flush(struct rp_tokenizer *tokenizer, struct rp_error *error)
{
    uint32_t texts = tokenizer->batch_texts;
    enum rp_ask ask = tokenizer->batch_ask;
    bool has_template = ask == RP_ASK_CHATS || ask == RP_ASK_CHAT_PAIRS;
    bool are_pairs = ask == RP_ASK_PREFERENCES || ask == RP_ASK_CHAT_PREFERENCES;
    has_template |= ask == RP_ASK_CHAT_PREFERENCES;
    enum rp_frame_kind expected = has_template ? RP_FRAME_CHATS : RP_FRAME_TEXTS;
    uint32_t request[2] = {ask, texts};
    struct rp_frame frame = {0};
    if (texts == 0)
        return 0;
    int code = rp_tokenizer_worker(tokenizer, tokenizer->choice.name, error);
    if (code == 0)
        code = rp_worker_send(&tokenizer->worker, request, sizeof request, error);
    if (code == 0)
        code = rp_worker_send(&tokenizer->worker, tokenizer->batch, tokenizer->batch_bytes, error);
    rp_tokenizer_forget(tokenizer);
    if (code == 0)
        code = rp_worker_receive(&tokenizer->worker, &frame, error);
    if (code == 0 &&
        (frame.kind != expected || frame.documents / (1 + are_pairs) + frame.bad != texts))
        code = rp_fail(error, -RP_E_PROTOCOL, NULL,
                       "%s: sent %" PRIu32 " texts, got %" PRIu32 " back", tokenizer->choice.name,
                       texts, frame.documents);
    tokenizer->special += frame.special;
    tokenizer->bad += frame.bad;
    if (code == 0)
        code = rp_frame_deliver(&frame, tokenizer->sink, tokenizer->context, error);
    rp_frame_release(&frame);
    return code;
}

void rp_tokenizer_forget(struct rp_tokenizer *tokenizer)
{
    tokenizer->batch_texts = 0;
    tokenizer->batch_bytes = 0;
}

void rp_tokenizer_close(struct rp_tokenizer *tokenizer)
{
    rp_worker_close(&tokenizer->worker, false);
    free(tokenizer->batch);
    free(tokenizer->ids);
    *tokenizer = (struct rp_tokenizer){.worker = {.socket = -1}};
}
