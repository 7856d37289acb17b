/* SPDX-License-Identifier: Apache-2.0 */
/* remote_inputs.c — the objects of a store to convert, in the same order as files.
 *
 * Each is queried once, before the conversion begins: its size is needed for the tasks,
 * and the identity of its content goes into the records of the parts. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "convert/convert.h"
#include "corpus/folder.h"
#include "object/remote.h"
#include "object/url.h"

#define LISTING_BYTES_MAX (256u << 20)

struct found {
    const struct rp_inputs *inputs;
    const char *folder;         /* its URL without the slash; NULL: of a pattern */
    const struct rp_form *form; /* NULL: by name */
    struct rp_paths urls;
};

/* The tokens of a Megatron data set, which may be named by either file. */
static bool is_index(const char *name)
{
    static const char *const suffixes[] = {".idx", ".rpi", ".spans", ".tokens.json"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(suffixes); i++)
        if (rp_text_has_suffix(name, suffixes[i]))
            return true;
    return false;
}

static int add_listed(void *context, const char *url, struct rp_error *error)
{
    struct found *found = context;
    char *whole = rp_url_name(url);
    const char *name = rp_path_name(whole ? whole : "");
    bool is_left_out = *name == '.' || is_index(name) ||
                       (found->folder && !rp_inputs_select(found->inputs, name));
    free(whole);
    return is_left_out ? 0 : rp_paths_add(&found->urls, url, error);
}

/* ---- folders with a list of their own -------------------------------------------------------- */

static bool is_there(void *context, const char *name)
{
    (void)context, (void)name; /* whoever compresses shards uploads these */
    return true;
}

static int add_named(void *context, const char *name, const struct rp_form *form,
                     struct rp_error *error)
{
    struct found *found = context;
    char *suffix = rp_asprintf("/%s", name);
    char *url = suffix ? rp_url_companion(found->folder, 0, suffix) : NULL;
    int code = url ? rp_paths_add(&found->urls, url, error)
                   : rp_fail(error, -ENOMEM, NULL, "no memory for the name of an object");
    found->form = form;
    free(suffix);
    free(url);
    return code;
}

/* 1 = done, 0 = it has none. */
static int read_listing(struct found *found, const char *directory, struct rp_error *error)
{
    static const char *const files[] = {"/index.json", "/state.json"};
    const struct rp_named_files listing = {directory, is_there, add_named, found};
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(files) && code == 0; i++) {
        char *url = rp_url_companion(found->folder, 0, files[i]), *text = NULL;
        size_t bytes;
        code = url ? rp_fetch_text(url, LISTING_BYTES_MAX, &text, &bytes, error)
                   : rp_fail(error, -ENOMEM, NULL, "no memory for a URL");
        if (code == 0)
            code = rp_named_files_read(&listing, files[i] + 1, text, bytes, error);
        else if (code == -ENOENT)
            code = 0;
        free(text);
        free(url);
    }
    return code;
}

static int read_folder(struct found *found, const char *url, struct rp_error *error)
{
    char *directory = rp_url_name(found->folder);
    int code = directory ? read_listing(found, directory, error)
                         : rp_fail(error, -ENOMEM, NULL, "no memory for a URL");
    if (code == 0)
        code = rp_remote_list(url, add_listed, found, error);
    free(directory);
    return code < 0 ? code : 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const struct rp_form *form_of(const struct found *found, const char *url)
{
    char *name = rp_url_name(url);
    const struct rp_form *form = found->form                        ? found->form
                                 : rp_text_has_suffix(name, ".bin") ? rp_form_named("megatron")
                                                                    : rp_form_of(name);
    free(name);
    return form;
}

static int add_found(struct rp_inputs *inputs, const struct found *found, bool named,
                     struct rp_error *error)
{
    struct rp_remote_stat *stats = rp_calloc(found->urls.count, sizeof *stats);
    size_t first = inputs->count;
    int code = stats ? rp_fetch_stats((const char *const *)found->urls.paths, found->urls.count,
                                      false, stats, error)
                     : rp_fail(error, -ENOMEM, NULL, "no memory for a list of objects");
    for (size_t i = 0; i < found->urls.count && code == 0; i++) {
        const char *url = found->urls.paths[i];
        const struct rp_form *form = form_of(found, url);
        if (!named && form->reading == RP_READ_REFUSED) /* as any other binary file */
            form = rp_form_named("text");
        code = rp_inputs_add_object(inputs, url, &stats[i], form, named, error);
    }
    if (code == 0 && !named)
        rp_inputs_leave_out_text(inputs, first);
    free(stats);
    return code;
}

/* The tokens of a Megatron data set that is named by its index; the caller frees it. */
static char *named_object(const char *url)
{
    return rp_url_has_suffix(url, ".idx") ? rp_url_companion(url, 4, ".bin") : strdup(url);
}

int rp_inputs_add_url(struct rp_inputs *inputs, const char *url, struct rp_error *error)
{
    bool wild = rp_url_is_pattern(url);
    bool is_folder = !wild && rp_url_has_suffix(url, "/");
    char *base = is_folder ? rp_url_companion(url, 1, "") : named_object(url);
    struct found found = {.inputs = inputs, .folder = is_folder ? base : NULL};
    int code = base ? 0 : rp_fail(error, -ENOMEM, NULL, "no memory for a URL");
    if (code == 0 && is_folder)
        code = read_folder(&found, url, error);
    else if (code == 0 && wild)
        code = rp_remote_list(url, add_listed, &found, error);
    else if (code == 0)
        code = rp_paths_add(&found.urls, base, error);
    if (code == 0 && found.urls.count == 0) {
        char *name = rp_url_name(url);
        code = rp_fail(error, -RP_E_EMPTY, "check the bucket and the key", "%s: no object matches",
                       name ? name : "");
        free(name);
    }
    if (code == 0)
        code = add_found(inputs, &found, !is_folder || found.form, error);
    rp_paths_release(&found.urls);
    free(base);
    return code;
}
