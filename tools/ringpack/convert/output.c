/* SPDX-License-Identifier: Apache-2.0 */
/* output.c — a Megatron dataset (engine/corpus/shard_megatron.c has the layout) that is there
 * whole or not at all: both files are on the disk before either gets its name, and whatever fails
 * later takes the published files back. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "convert/convert.h"
#include "corpus/corpus.h"

#define BUFFER_BYTES (1u << 20)
#define INDEX_HEADER_BYTES 34u

enum { CODE_I32 = 4, CODE_U16 = 8 }; /* dtype codes of the index */

/* Without --force no file is replaced, neither an output nor a companion file. */
static int refuse_existing(const char *prefix, struct rp_error *error)
{
    static const char *const endings[] = {".bin", ".idx", ".spans", ".tokens.json", ".bin.rpi"};
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(endings) && code == 0; i++) {
        char *path = rp_asprintf("%s%s", prefix, endings[i]);
        if (!path)
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", prefix);
        else if (access(path, F_OK) == 0)
            code = rp_fail(error, -EEXIST, "choose another -o, or give --force to replace it",
                           "%s: it exists already", path);
        free(path);
    }
    return code;
}

int rp_output_open(struct rp_output *output, const char *prefix, bool wide, bool replace,
                   const struct rp_wanted_sides *wanted, struct rp_error *error)
{
    *output = (struct rp_output){
        .tokens.fd = -1, .spans.file.fd = -1, .wide = wide, .replace = replace, .wanted = wanted};
    rp_hasher_begin(&output->hasher);
    output->token_path = rp_asprintf("%s.bin", prefix);
    output->index_path = rp_asprintf("%s.idx", prefix);
    output->span_path = rp_asprintf("%s.spans", prefix);
    output->buffer = malloc(BUFFER_BYTES);
    int code = 0;
    if (!output->token_path || !output->index_path || !output->span_path || !output->buffer)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory to write it", prefix);
    if (code == 0 && !replace)
        code = refuse_existing(prefix, error);
    if (code == 0)
        code = rp_new_file_open(&output->tokens, output->token_path, error);
    if (code == 0)
        code = rp_output_sides_open(output, error);
    if (code < 0)
        rp_output_discard(output);
    return code;
}

static int flush(struct rp_output *output, struct rp_error *error)
{
    rp_hasher_add(&output->hasher, output->buffer, output->buffered);
    int code = rp_file_write(output->tokens.fd, output->token_path, output->buffer,
                             output->buffered, error);
    output->buffered = 0;
    return code;
}

/* Ids of one width to ids of another; those that are narrowed fit, or were refused. */
static void copy_ids(uint8_t *to, uint32_t to_width, const uint8_t *from, uint32_t from_width,
                     size_t count)
{
    if (to_width == from_width) {
        memcpy(to, from, count * to_width);
    } else if (to_width == 4) {
        for (size_t i = 0; i < count; i++)
            rp_store_u32(to + 4 * i, rp_load_u16(from + 2 * i));
    } else {
        for (size_t i = 0; i < count; i++) {
            uint16_t id = (uint16_t)rp_load_u32(from + 4 * i);
            memcpy(to + 2 * i, &id, sizeof id);
        }
    }
}

static int put_tokens(struct rp_output *output, const struct rp_ids *ids, struct rp_error *error)
{
    uint32_t width = output->wide ? 4 : 2;
    for (size_t done = 0; done < ids->count;) {
        size_t part = (size_t)rp_min_u64(ids->count - done,
                                         (BUFFER_BYTES - output->buffered) / width);
        copy_ids(output->buffer + output->buffered, width,
                 (const uint8_t *)ids->at + done * ids->width, ids->width, part);
        output->buffered += part * width;
        done += part;
        int code = output->buffered == BUFFER_BYTES ? flush(output, error) : 0;
        if (code < 0)
            return code;
    }
    return 0;
}

static int put_end(struct rp_output *output, int64_t id, struct rp_error *error)
{
    uint32_t end = (uint32_t)id;
    struct rp_ids ids = {.at = &end, .width = sizeof end, .count = 1};
    return put_tokens(output, &ids, error);
}

static uint32_t id_at(const struct rp_ids *ids, size_t place)
{
    const uint8_t *at = (const uint8_t *)ids->at + place * ids->width;
    return ids->width == 2 ? rp_load_u16(at) : rp_load_u32(at);
}

static int reserve_lengths(struct rp_output *output, size_t more, struct rp_error *error)
{
    size_t needed = output->documents + more;
    if (!RP_GROW(output->lengths, output->capacity, needed))
        return rp_fail(error, -ENOMEM, NULL, "no memory for an index of %zu documents", needed);
    return 0;
}

int rp_output_append(struct rp_output *output, const int32_t *lengths, size_t documents,
                     const struct rp_ids *ids, struct rp_error *error)
{
    int code = reserve_lengths(output, documents, error);
    if (code < 0)
        return code;
    memcpy(output->lengths + output->documents, lengths, documents * sizeof *lengths);
    output->documents += documents;
    output->token_count += ids->count;
    return put_tokens(output, ids, error);
}

/* The spans of the last document, of the runs of its tokens before the ends were put around it. A
 * token at the end is trained if the one before it is: who learns an answer learns where it ends.
 */
static int add_runs(struct rp_output *output, const struct rp_ids *ids, bool begin, bool end,
                    struct rp_error *error)
{
    const struct rp_trained *trained = &ids->trained;
    uint32_t count = 0;
    if (!RP_GROW(output->scratch, output->scratch_capacity, trained->count + 1u))
        return rp_fail(error, -ENOMEM, NULL, "no memory for %" PRIu32 " spans", trained->count);
    for (uint32_t i = 0; i < trained->count; i++) {
        struct rp_span run = trained->runs[i];
        bool is_last = end && run.end == ids->count;
        run = (struct rp_span){run.begin + begin, run.end + begin + is_last};
        run.begin = run.begin > 0 ? run.begin : 1; /* token 0 is the first */
        if (run.begin < run.end)
            output->scratch[count++] = run;
    }
    return rp_output_mask(output, output->documents - 1, trained->origin, output->scratch, count,
                          error);
}

int rp_output_add(struct rp_output *output, const struct rp_ids *ids, struct rp_ends ends,
                  struct rp_error *error)
{
    size_t count = ids->count;
    bool begin = ends.bos >= 0 && (count == 0 || id_at(ids, 0) != (uint32_t)ends.bos);
    bool end = ends.eos >= 0 && (count == 0 || id_at(ids, count - 1) != (uint32_t)ends.eos);
    size_t length = count + begin + end;
    if (length > INT32_MAX)
        return rp_fail(error, -RP_E_FORMAT, "cut it with --split-bytes",
                       "a document of %zu tokens: the index holds at most %d", length, INT32_MAX);
    int code = reserve_lengths(output, 1, error);
    if (code < 0)
        return code;
    output->lengths[output->documents++] = (int32_t)length;
    output->token_count += length;
    if (begin)
        code = put_end(output, ends.bos, error);
    if (code == 0)
        code = put_tokens(output, ids, error);
    if (code == 0 && end)
        code = put_end(output, ends.eos, error);
    if (code == 0)
        code = rp_output_sides_add(output, ids, begin, end, error);
    return code == 0 && ids->trained.origin ? add_runs(output, ids, begin, end, error) : code;
}

/* Documents before `document` that have no mask are trained whole. */
static int fill_spans(struct rp_output *output, size_t document, struct rp_error *error)
{
    int code = 0;
    for (size_t d = (size_t)output->spans.documents; d < document && code == 0; d++) {
        const struct rp_span whole = {1, (uint32_t)output->lengths[d]};
        code = rp_spanfile_add(&output->spans, &whole, output->lengths[d] > 1, error);
    }
    return code;
}

static int fail_other_mask(const struct rp_output *output, const struct rp_mask_origin *origin,
                           struct rp_error *error)
{
    char expected[64], found[64];
    rp_mask_text(&output->spans.origin, expected, sizeof expected);
    rp_mask_text(origin, found, sizeof found);
    return rp_fail(error, -RP_E_FORMAT,
                   "choose one with --mask NAME, or train every token with --mask none; inputs of "
                   "several masks are converted one by one, and are several sources of a run",
                   "two masks in one output: earlier documents have `%s`, this one has `%s`",
                   expected, found);
}

int rp_output_mask(struct rp_output *output, size_t document, const struct rp_mask_origin *origin,
                   const struct rp_span *spans, uint32_t count, struct rp_error *error)
{
    int code = 0;
    RP_ASSERT(document < output->documents);
    if (!output->has_spans)
        code = rp_spanfile_begin(&output->spans, output->span_path, origin, error);
    else if (memcmp(&output->spans.origin, origin, sizeof *origin) != 0)
        return fail_other_mask(output, origin, error);
    output->has_spans = true;
    if (code == 0)
        code = fill_spans(output, document, error);
    return code < 0 ? code : rp_spanfile_add(&output->spans, spans, count, error);
}

/* The index is written through the same buffer, which is empty by then. */
struct index_writer {
    struct rp_output *output;
    int fd;
    int code;
    struct rp_hasher hasher;
};

static void write_buffered(struct index_writer *writer, struct rp_error *error)
{
    struct rp_output *output = writer->output;
    rp_hasher_add(&writer->hasher, output->buffer, output->buffered);
    writer->code = rp_file_write(writer->fd, output->index_path, output->buffer, output->buffered,
                                 error);
    output->buffered = 0;
}

static void put(struct index_writer *writer, const void *bytes, size_t count,
                struct rp_error *error)
{
    struct rp_output *output = writer->output;
    if (writer->code == 0 && output->buffered + count > BUFFER_BYTES)
        write_buffered(writer, error);
    if (writer->code < 0)
        return;
    memcpy(output->buffer + output->buffered, bytes, count);
    output->buffered += count;
}

static int write_index(struct rp_output *output, int fd, struct rp_error *error)
{
    struct index_writer writer = {.output = output, .fd = fd};
    rp_hasher_begin(&writer.hasher);
    uint8_t header[INDEX_HEADER_BYTES] = "MMIDIDX";
    uint64_t width = output->wide ? 4 : 2, position = 0;
    rp_store_u64(header + 9, 1);
    header[17] = output->wide ? CODE_I32 : CODE_U16;
    rp_store_u64(header + 18, output->documents);
    rp_store_u64(header + 26, output->documents + 1);
    put(&writer, header, sizeof header, error);
    for (size_t d = 0; d < output->documents; d++)
        put(&writer, &output->lengths[d], sizeof output->lengths[d], error);
    for (size_t d = 0; d < output->documents; d++) {
        put(&writer, &position, sizeof position, error);
        position += (uint64_t)output->lengths[d] * width;
    }
    for (uint64_t d = 0; d <= output->documents; d++)
        put(&writer, &d, sizeof d, error);
    if (writer.code == 0)
        write_buffered(&writer, error);
    output->index_hash = rp_hasher_finish(&writer.hasher);
    return writer.code;
}

/* A full disk may show only here: before anything has a name. */
static int sync_file(int fd, const char *path, struct rp_error *error)
{
    if (fsync(fd) == 0)
        return 0;
    return rp_fail(error, -errno, "make room on this file system, or write to another one",
                   "%s: cannot sync: %s", path, strerror(errno));
}

/* The companion files of an output. */
struct companions {
    char *sidecar, *origin;
};

static void remove_companions(const struct companions *companions)
{
    unlink(companions->sidecar);
    unlink(companions->origin);
}

/* The sidecar takes the tokenizer from PREFIX.tokens.json, as `ringpack index` does. */
static int write_companions(const struct rp_output *output, const struct companions *companions,
                            struct rp_error *error)
{
    int code = rp_file_replace(companions->origin, output->origin, strlen(output->origin), error);
    return code < 0 ? code : rp_sidecar_build(output->token_path, NULL, error);
}

static int publish_files(struct rp_output *output, struct rp_new_file *index,
                         const struct companions *companions, struct rp_error *error)
{
    /* Old companions go first: with the new tokens they would be a dataset that never was. */
    if (output->full)
        remove_companions(companions);
    unlink(output->index_path);
    unlink(output->span_path);
    rp_output_sides_unlink(output);
    int code = rp_new_file_publish(&output->tokens, error);
    bool published = code == 0;
    if (code == 0 && output->has_spans)
        code = rp_new_file_publish(&output->spans.file, error);
    if (code == 0)
        code = rp_output_sides_publish(output, error);
    if (code == 0)
        code = rp_new_file_publish(index, error);
    if (code == 0 && output->full)
        code = write_companions(output, companions, error);
    if (code < 0 && published) {
        remove_companions(companions);
        unlink(output->index_path);
        unlink(output->span_path);
        rp_output_sides_unlink(output);
        unlink(output->token_path);
    }
    return code;
}

/* Another conversion may have written the same output meanwhile. */
static int publish_locked(struct rp_output *output, struct rp_new_file *index,
                          const struct companions *companions, struct rp_error *error)
{
    if (!output->full)
        return publish_files(output, index, companions, error);
    size_t stem = strlen(output->token_path) - strlen(".bin");
    char *prefix = rp_asprintf("%.*s", (int)stem, output->token_path);
    int lock = prefix ? rp_output_lock(output->token_path, error)
                      : rp_fail(error, -ENOMEM, NULL, "no memory for a name");
    int code = lock < 0 ? lock : output->replace ? 0 : refuse_existing(prefix, error);
    if (code == 0)
        code = rp_output_sides_check(prefix, output->wanted, output->replace, error);
    if (code == 0)
        code = publish_files(output, index, companions, error);
    free(prefix);
    if (lock >= 0)
        close(lock);
    return code;
}

static int publish_all(struct rp_output *output, struct rp_new_file *index, struct rp_error *error)
{
    size_t stem = strlen(output->token_path) - strlen(".bin");
    struct companions companions = {
        rp_asprintf("%s.rpi", output->token_path),
        rp_asprintf("%.*s.tokens.json", (int)stem, output->token_path),
    };
    int code = companions.sidecar && companions.origin
                   ? publish_locked(output, index, &companions, error)
                   : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", output->token_path);
    free(companions.sidecar);
    free(companions.origin);
    return code;
}

static int finish_spans(struct rp_output *output, struct rp_error *error)
{
    int code = fill_spans(output, output->documents, error);
    if (code == 0)
        code = rp_spanfile_finish(&output->spans, error);
    return code == 0 ? sync_file(output->spans.file.fd, output->span_path, error) : code;
}

int rp_output_publish(struct rp_output *output, struct rp_error *error)
{
    struct rp_new_file index = {.fd = -1};
    int code = flush(output, error);
    output->token_hash = rp_hasher_finish(&output->hasher);
    if (code == 0 && output->has_spans)
        code = finish_spans(output, error);
    if (code == 0)
        code = rp_output_sides_end(output, error);
    if (code == 0)
        code = rp_new_file_open(&index, output->index_path, error);
    if (code == 0)
        code = write_index(output, index.fd, error);
    if (code == 0)
        code = sync_file(output->tokens.fd, output->token_path, error);
    if (code == 0)
        code = sync_file(index.fd, output->index_path, error);
    if (code == 0)
        code = publish_all(output, &index, error);
    rp_new_file_discard(&index);
    return code;
}

void rp_output_discard(struct rp_output *output)
{
    rp_new_file_discard(&output->tokens);
    rp_spanfile_discard(&output->spans);
    rp_output_sides_discard(output);
    free(output->token_path);
    free(output->span_path);
    free(output->scratch);
    free(output->index_path);
    free(output->origin);
    free(output->buffer);
    free(output->lengths);
    *output = (struct rp_output){.tokens.fd = -1, .spans.file.fd = -1};
}
