/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h — shared by the fuzz targets: requirements that hold in every build, values cut from the
 * fuzzer's bytes, and edits of a good image.
 *
 * A target gets bytes and checks its requirements on them. If a parser checks a hash first, the
 * bytes are edits of a good image, and the hashes are made right again afterwards: then the test is
 * of the checks after the hash. */
#ifndef RP_TESTS_FUZZ_H
#define RP_TESTS_FUZZ_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/log.h"
#include "memory_file.h"

#define FUZZ __attribute__((unused)) static

/* libFuzzer calls these. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_REQUIRE(e) ((e) ? (void)0 : fuzz_failed(#e, __FILE__, __LINE__))
FUZZ void fuzz_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, expression);
    abort();
}
/* A code is 0 or a failure with a message, and the code in *error. */
FUZZ bool fuzz_accepted(int code, const struct rp_error *error)
{
    FUZZ_REQUIRE(code <= 0);
    FUZZ_REQUIRE(code == 0 || (error->code == code && error->message[0] != 0));
    return code == 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

/* The next `bytes` (at most 8) as a number; missing ones are zero. */
FUZZ uint64_t fuzz_number(struct fuzz_input *input, size_t bytes)
{
    uint64_t value = 0;
    size_t there = input->left < bytes ? input->left : bytes;
    if (there)
        memcpy(&value, input->at, there);
    input->at += there;
    input->left -= there;
    return value;
}

/* Overwrite numbers of an image: u16 offset, u8 width (1, 2, 4, 8), value; all that is left. */
FUZZ void fuzz_edit(struct fuzz_input *input, uint8_t *image, size_t bytes)
{
    while (input->left > 3 && bytes > 0) {
        size_t offset = (size_t)fuzz_number(input, 2) % bytes;
        size_t width = (size_t)1 << (fuzz_number(input, 1) & 3);
        uint64_t value = fuzz_number(input, width);
        memcpy(image + offset, &value, width < bytes - offset ? width : bytes - offset);
    }
}

/* An input that begins with its mode, a byte, and is an image: as it stands, or edits of a good
 * one. Returns the bytes of the image. */
enum { FUZZ_AS_IT_IS = 1, FUZZ_MENDED = 2 }; /* the target makes the hashes right again */
FUZZ size_t fuzz_image(struct fuzz_input *input, unsigned *mode, uint8_t *image, size_t most,
                       const uint8_t *good, size_t good_bytes)
{
    *mode = (unsigned)fuzz_number(input, 1);
    bool as_it_is = *mode & FUZZ_AS_IT_IS;
    size_t bytes = as_it_is ? rp_min_u64(input->left, most) : good_bytes;
    memcpy(image, as_it_is && bytes ? input->at : good, bytes);
    if (!as_it_is)
        fuzz_edit(input, image, bytes);
    return bytes;
}

/* fuzz_accepted for an image. The good one is accepted, and without mended hashes no other one. */
FUZZ bool fuzz_accepted_image(int code, const struct rp_error *error, bool is_good, unsigned mode)
{
    bool accepted = fuzz_accepted(code, error);
    FUZZ_REQUIRE(mode & FUZZ_MENDED ? accepted || !is_good : accepted == is_good);
    return accepted;
}

/* ---- files on disk --------------------------------------------------------------------------- */

/* A directory in memory, which is removed at the end. */
FUZZ char fuzz_scratch[] = "/dev/shm/rp-fuzz-XXXXXX";
FUZZ void fuzz_leave_scratch(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", fuzz_scratch);
    FUZZ_REQUIRE(system(command) == 0);
}
FUZZ void fuzz_enter_scratch(void)
{
    FUZZ_REQUIRE(mkdtemp(fuzz_scratch) && atexit(fuzz_leave_scratch) == 0);
}

FUZZ void fuzz_put(const char *path, const void *content, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_REQUIRE(fd >= 0 && write(fd, content, bytes) == (ssize_t)bytes && close(fd) == 0);
}

/* The content of a file of at least one byte, and of less than `most`. */
FUZZ size_t fuzz_get(const char *path, void *content, size_t most)
{
    FILE *file = fopen(path, "rb");
    size_t bytes = 0;
    FUZZ_REQUIRE(file && (bytes = fread(content, 1, most, file)) > 0 && feof(file));
    fclose(file);
    return bytes;
}

#endif
