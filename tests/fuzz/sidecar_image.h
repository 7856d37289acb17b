/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar_image.h — a small token file with a good sidecar, and a sidecar in memory whose hashes
 * are made right again after edits. */
#ifndef RP_TESTS_SIDECAR_IMAGE_H
#define RP_TESTS_SIDECAR_IMAGE_H

#include "../fakes/index_image.h"
#include "corpus/fingerprint.h"
#include "corpus/shard.h"
#include "fuzz.h"

#define TOKENS 5000u
#define IMAGE_BYTES_MAX 4096u

static uint8_t good[IMAGE_BYTES_MAX], image[IMAGE_BYTES_MAX];
static size_t good_bytes;
static const char *token_path;
static const struct rp_source_spec hints = {.format = RP_FORMAT_RAW, .type = RP_TOKEN_U16};

FUZZ void sidecar_start(void)
{
    uint16_t tokens[TOKENS];
    char path[64];
    for (unsigned i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i % 97);
    fuzz_enter_scratch();
    snprintf(path, sizeof path, "%s/t.bin", fuzz_scratch);
    fuzz_put(path, tokens, sizeof tokens);
    FUZZ_REQUIRE(
        rp_sidecar_build(path, &(struct rp_sidecar_build_options){.hints = &hints}, NULL) == 0);
    snprintf(path, sizeof path, "%s/t.bin.rpi", fuzz_scratch);
    good_bytes = fuzz_get(path, good, sizeof good);
    token_path = fuzz_file("t.bin", tokens, sizeof tokens);
}

#endif
