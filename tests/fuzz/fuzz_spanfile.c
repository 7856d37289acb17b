/* SPDX-License-Identifier: Apache-2.0 */
/* A file of spans: u8 (1: the bytes are the file, 0: edits of a good one; 2: hashes made right
 * again), then the bytes. The documents of the shard stay the same.
 *
 * Hashes not mended: accepted if and only if it is the good one. Mended: the spans of an accepted
 * file ascend without touching, none has the first token, and all are in their document. */
#include "corpus/spanfile.h"
#include "fuzz.h"

#define DOCUMENTS 5u
#define IMAGE_BYTES_MAX 4096u
#define AT_CONTENT 64u
#define AT_CHECK 80u

static const uint64_t lengths[DOCUMENTS] = {6, 1, 0, 9, 1000};
static const uint32_t counts[DOCUMENTS] = {2, 0, 0, 1, 3};
static const struct rp_span spans[] = {{1, 2}, {4, 6}, {3, 9}, {1, 10}, {20, 21}, {999, 1000}};
static uint8_t good[IMAGE_BYTES_MAX], image[IMAGE_BYTES_MAX];
static size_t good_bytes;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    char path[64];
    struct rp_spanfile_writer writer;
    const struct rp_mask_origin origin = {"skip", {.ignores = true}};
    const struct rp_span *own = spans;
    fuzz_enter_scratch();
    snprintf(path, sizeof path, "%s/good.spans", fuzz_scratch);
    FUZZ_REQUIRE(rp_spanfile_begin(&writer, path, &origin, NULL) == 0);
    for (uint32_t d = 0; d < DOCUMENTS; own += counts[d++])
        FUZZ_REQUIRE(rp_spanfile_add(&writer, own, counts[d], NULL) == 0);
    FUZZ_REQUIRE(rp_spanfile_finish(&writer, NULL) == 0);
    FUZZ_REQUIRE(rp_new_file_publish(&writer.file, NULL) == 0);
    rp_spanfile_discard(&writer);
    good_bytes = fuzz_get(path, good, sizeof good);
    return 0;
}

static void mend(uint8_t *bytes, size_t count)
{
    if (count < RP_SPANFILE_HEADER_BYTES)
        return;
    rp_hash128_store(bytes + AT_CONTENT, rp_hash128(bytes + RP_SPANFILE_HEADER_BYTES,
                                                    count - RP_SPANFILE_HEADER_BYTES));
    rp_hash128_store(bytes + AT_CHECK, rp_hash128(bytes, AT_CHECK));
}

static void check_spans(const struct rp_span *own, uint32_t count, uint64_t tokens)
{
    uint64_t behind = 0;
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_REQUIRE(own[i].begin > behind && own[i].begin < own[i].end && own[i].end <= tokens);
        behind = own[i].end;
    }
}

static int read_all(struct rp_spanfile *file, const char *path, struct rp_error *error)
{
    int code = rp_spanfile_open(file, path, error);
    FUZZ_REQUIRE(code != 0); /* 0: no such file */
    for (uint32_t d = 0; d < DOCUMENTS && code >= 0; d++) {
        const struct rp_span *own;
        uint32_t count;
        code = rp_spanfile_next(file, lengths[d], &own, &count, error);
        if (code == 0)
            check_spans(own, count, lengths[d]);
    }
    return code < 0 ? code : rp_spanfile_end(file, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned mode;
    size_t bytes = fuzz_image(&input, &mode, image, sizeof image, good, good_bytes);
    if (mode & FUZZ_MENDED)
        mend(image, bytes);
    struct rp_spanfile file;
    struct rp_error error = {0};
    const char *path = fuzz_file("m.spans", image, bytes);
    bool same = bytes == good_bytes && memcmp(image, good, bytes) == 0;
    if (fuzz_accepted_image(read_all(&file, path, &error), &error, same, mode))
        FUZZ_REQUIRE(memchr(file.origin.name, 0, RP_MASK_NAME_BYTES));
    rp_spanfile_close(&file);
    return 0;
}
