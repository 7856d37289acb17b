/* SPDX-License-Identifier: Apache-2.0 */
/* A file with a trainer's saved state: u8 (0: the bytes are the file; 1: as one stored member of a
 * zip), then the bytes.
 *
 * An accepted file has a state token. Written in each form it is read back, byte for byte. */
#include <stdlib.h>

#include "fuzz.h"
#include "plan/plan.h"
#include "state/state_file.h"
#include "state/state_search.h"

static const struct rp_saved_form *const forms[] = {&rp_saved_form_zip, &rp_saved_form_safetensors,
                                                    &rp_saved_form_json};

static void check_form(const struct rp_saved_form *form, const char *token, size_t bytes)
{
    struct rp_error error = {0};
    uint8_t *file = NULL;
    size_t file_bytes;
    FUZZ_REQUIRE(form->write(token, bytes, &file, &file_bytes, &error) == 0);
    FUZZ_REQUIRE(form->claim(file, file_bytes));
    struct rp_saved_search search = {.path = "again", .data = file, .bytes = file_bytes};
    FUZZ_REQUIRE(form->read(&search, &error) == 0 && search.token && search.token_bytes == bytes &&
                 memcmp(search.token, token, bytes) == 0);
    free(search.token);
    free(file);
}

/* A zip whose directory is right, so that more than its end is tried. */
static size_t wrap(uint8_t *zip, const uint8_t *data, size_t bytes)
{
    static const uint8_t local[30] = "PK\3\4", entry[46] = "PK\1\2", end[22] = "PK\5\6";
    memcpy(zip, local, sizeof local);
    memcpy(zip + sizeof local, data, bytes);
    size_t at = sizeof local + bytes;
    memcpy(zip + at, entry, sizeof entry);
    rp_store_u32(zip + at + 20, (uint32_t)bytes);
    rp_store_u32(zip + at + 24, (uint32_t)bytes);
    memcpy(zip + at + sizeof entry, end, sizeof end);
    rp_store_u32(zip + at + sizeof entry + 12, sizeof entry);
    rp_store_u32(zip + at + sizeof entry + 16, (uint32_t)at);
    return at + sizeof entry + sizeof end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t zip[1u << 20];
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    struct rp_state_info info;
    char *token = NULL;
    size_t bytes = 0;
    bool is_wrapped = fuzz_number(&input, 1) & 1 && input.left < sizeof zip - 128;
    size_t length = is_wrapped ? wrap(zip, input.at, input.left) : input.left;
    const char *path = fuzz_file("state", is_wrapped ? zip : input.at, length);
    int code = rp_saved_read(path, &token, &bytes, &error);
    FUZZ_REQUIRE(code != 1 || rp_saved_claimed(path));
    if (fuzz_accepted(code == 1 ? 0 : code, &error) && code == 1) {
        FUZZ_REQUIRE(rp_state_info(token, bytes, &info, &error) == 0 && info.bytes == bytes);
        for (size_t i = 0; i < RP_ARRAY_COUNT(forms); i++)
            check_form(forms[i], token, bytes);
        free(token);
    }
    return 0;
}
