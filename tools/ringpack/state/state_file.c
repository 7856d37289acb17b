/* SPDX-License-Identifier: Apache-2.0 */
#include "state/state_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/text.h"
#include "plan/token_records.h"
#include "state/state_search.h"

static const struct rp_saved_form *const forms[] = {&rp_saved_form_zip, &rp_saved_form_safetensors,
                                                    &rp_saved_form_json};

/* ---- reading --------------------------------------------------------------------------------- */

static const struct rp_saved_form *form_of(const uint8_t *data, uint64_t bytes)
{
    for (size_t i = 0; i < RP_ARRAY_COUNT(forms); i++)
        if (forms[i]->claim(data, bytes))
            return forms[i];
    return NULL;
}

bool rp_saved_claimed(const char *path)
{
    struct rp_map map;
    if (rp_map_open(&map, path, NULL) < 0)
        return false;
    bool is_claimed = form_of(map.data, map.bytes) != NULL;
    rp_map_close(&map);
    return is_claimed;
}

int rp_saved_read(const char *path, char **token, size_t *bytes, struct rp_error *error)
{
    struct rp_map map;
    int code = rp_map_open(&map, path, error);
    if (code < 0)
        return code;
    struct rp_saved_search search = {.path = path, .data = map.data, .bytes = map.bytes};
    const struct rp_saved_form *form = form_of(map.data, map.bytes);
    code = form ? form->read(&search, error) : 0;
    rp_map_close(&map);
    if (form && code == 0 && !search.token)
        code = rp_fail(error, -RP_E_CORRUPT, "give a file in which state_dict() was saved",
                       "%s: %s without a state token", path, form->name);
    if (code < 0) {
        free(search.token);
        return code;
    }
    *token = search.token;
    *bytes = search.token_bytes;
    return form != NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_form(const struct rp_saved_form *form, const char *path, const void *token,
                      size_t bytes, struct rp_error *error)
{
    uint8_t *file = NULL;
    size_t file_bytes;
    int code = form->write(token, bytes, &file, &file_bytes, error);
    if (code == 0)
        code = rp_file_replace(path, file, file_bytes, error);
    free(file);
    return code;
}

int rp_saved_write(const char *path, const void *token, size_t bytes, struct rp_error *error)
{
    if (rp_text_has_suffix(path, ".token"))
        return rp_file_replace(path, token, bytes, error);
    for (size_t i = 0; i < RP_ARRAY_COUNT(forms); i++)
        if (rp_text_has_suffix(path, forms[i]->suffix))
            return write_form(forms[i], path, token, bytes, error);
    if (rp_text_has_suffix(path, ".pt") || rp_text_has_suffix(path, ".pth"))
        return rp_fail(error, -RP_E_USAGE,
                       "write it as .token, then in Python: "
                       "`ringpack.export_state(\"FILE.token\", \"FILE.pt\")`",
                       "%s: files of PyTorch are written by the Python package", path);
    return rp_fail(error, -RP_E_USAGE, "give the file a name that ends in one of these",
                   "%s: the name says no form: expected .token, .json, .npz, .safetensors or .pt",
                   path);
}
