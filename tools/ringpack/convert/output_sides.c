/* SPDX-License-Identifier: Apache-2.0 */
/* output_sides.c — side columns of an output: PREFIX.NAME.col, with an entry for each token. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "convert/convert.h"

#define REPEATED_BYTES 4096u

int rp_output_sides_open(struct rp_output *output, struct rp_error *error)
{
    if (output->wanted->count == 0)
        return 0;
    output->sides = rp_calloc(output->wanted->count, sizeof *output->sides);
    if (!output->sides)
        return rp_fail(error, -ENOMEM, NULL, "no memory for side columns");
    for (uint32_t i = 0; i < output->wanted->count; i++)
        output->sides[i].file.fd = -1;
    return 0;
}

/* The first entry decides the type, and until it comes each document may have another one: an empty
 * list does not have the width of its entries. */
static int take_type(struct rp_output *output, uint32_t i, const struct rp_side_type *type,
                     bool is_empty, struct rp_error *error)
{
    struct rp_side_writer *writer = &output->sides[i];
    const char *name = output->wanted->columns[i].name;
    char expected[RP_SIDE_TYPE_BYTES], found[RP_SIDE_TYPE_BYTES];
    if (!writer->block) {
        char *path = rp_sidefile_path(output->token_path, name);
        int code = path ? rp_sidefile_begin(writer, path, type, error)
                        : rp_fail(error, -ENOMEM, NULL, "no memory for a name");
        free(path);
        return code;
    }
    if (is_empty || memcmp(&writer->type, type, sizeof *type) == 0)
        return 0;
    if (writer->bytes == 0) {
        writer->type = *type;
        return 0;
    }
    rp_sidefile_type_text(&writer->type, expected);
    rp_sidefile_type_text(type, found);
    return rp_fail(error, -RP_E_FORMAT,
                   "a column has one type and one width: `--side-column NAME=FIELD:TYPE` chooses "
                   "the type",
                   "side column `%s`: expected %s, as earlier documents have, found %s", name,
                   expected, found);
}

static int repeat(struct rp_side_writer *writer, const uint8_t *entry, uint64_t count,
                  struct rp_error *error)
{
    uint8_t block[REPEATED_BYTES];
    uint32_t width = writer->type.bytes;
    uint64_t held = rp_min_u64(count, sizeof block / width);
    int code = 0;
    for (uint64_t i = 0; i < held; i++)
        memcpy(block + i * width, entry, width);
    for (uint64_t some; count > 0 && code == 0; count -= some) {
        some = rp_min_u64(count, held);
        code = rp_sidefile_add(writer, block, (size_t)some * width, error);
    }
    return code;
}

int rp_output_sides_add(struct rp_output *output, const struct rp_ids *ids, bool begin, bool end,
                        struct rp_error *error)
{
    static const uint8_t zeros[RP_SIDE_ENTRY_BYTES];
    int code = 0;
    for (uint32_t i = 0; i < output->wanted->count && code == 0; i++) {
        const struct rp_entries *entries = &ids->sides[i];
        struct rp_side_writer *writer = &output->sides[i];
        code = take_type(output, i, &entries->type, ids->count == 0, error);
        if (code == 0 && entries->is_number) {
            code = repeat(writer, entries->at, ids->count + begin + end, error);
            continue;
        }
        if (code == 0)
            code = repeat(writer, zeros, begin, error);
        if (code == 0)
            code = rp_sidefile_add(writer, entries->at,
                                   (size_t)(entries->count * entries->type.bytes), error);
        if (code == 0)
            code = repeat(writer, zeros, end, error);
    }
    return code;
}

int rp_output_side_append(struct rp_output *output, uint32_t i, const struct rp_entries *entries,
                          struct rp_error *error)
{
    int code = take_type(output, i, &entries->type, entries->count == 0, error);
    return code < 0 ? code
                    : rp_sidefile_add(&output->sides[i], entries->at,
                                      (size_t)(entries->count * entries->type.bytes), error);
}

int rp_output_sides_end(struct rp_output *output, struct rp_error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < output->wanted->count && code == 0; i++)
        if (output->sides[i].block)
            code = rp_sidefile_end(&output->sides[i], error);
    return code;
}

int rp_output_sides_publish(struct rp_output *output, struct rp_error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < output->wanted->count && code == 0; i++)
        if (output->sides[i].block)
            code = rp_new_file_publish(&output->sides[i].file, error);
    return code;
}

void rp_output_sides_unlink(const struct rp_output *output)
{
    for (uint32_t i = 0; i < output->wanted->count; i++) {
        char *path = rp_sidefile_path(output->token_path, output->wanted->columns[i].name);
        if (path)
            unlink(path);
        free(path);
    }
}

void rp_output_sides_discard(struct rp_output *output)
{
    for (uint32_t i = 0; output->sides && i < output->wanted->count; i++)
        rp_sidefile_discard(&output->sides[i]);
    free(output->sides);
}

/* ---- columns that are there ------------------------------------------------------------------ */

/* The NAME of a file BASE.NAME.col, in `name`; NULL: it is another file. */
static const char *name_of(const char *file, const char *base, char name[RP_SIDE_NAME_BYTES])
{
    size_t stem = strlen(base), length = strlen(file);
    if (!rp_text_has_suffix(file, ".col") || length < stem + 5 || file[stem] != '.' ||
        memcmp(file, base, stem) != 0)
        return NULL;
    snprintf(name, RP_SIDE_NAME_BYTES, "%.*s", (int)(length - stem - 5), file + stem + 1);
    return rp_sidefile_is_name(name) && strlen(name) == length - stem - 5 ? name : NULL;
}

static int fail_there(const char *prefix, const char *name, const struct rp_wanted_sides *wanted,
                      bool replace, struct rp_error *error)
{
    char expected[RP_SIDES_MAX * (RP_SIDE_NAME_BYTES + 2) + 8] = "none";
    size_t used = 0;
    for (uint32_t i = 0; i < wanted->count; i++)
        used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s", i ? ", " : "",
                                 wanted->columns[i].name);
    if (!replace)
        return rp_fail(error, -EEXIST, "choose another -o, or give --force to replace it",
                       "%s.%s.col: it exists already", prefix, name);
    return rp_fail(error, -EEXIST, "give --side-column for it too, remove it, or choose another -o",
                   "%s.%s.col: a side column of the output that is replaced: expected columns of "
                   "this command (%s), found `%s`",
                   prefix, name, expected, name);
}

int rp_output_sides_check(const char *prefix, const struct rp_wanted_sides *wanted, bool replace,
                          struct rp_error *error)
{
    const char *base = rp_path_name(prefix);
    char *folder = rp_path_directory(prefix), name[RP_SIDE_NAME_BYTES];
    DIR *directory = folder ? opendir(folder) : NULL; /* without one, there is no column */
    int code = 0;
    for (struct dirent *entry; code == 0 && directory && (entry = readdir(directory)) != NULL;) {
        bool is_wanted = false;
        if (!name_of(entry->d_name, base, name))
            continue;
        for (uint32_t i = 0; i < wanted->count; i++)
            is_wanted |= !strcmp(name, wanted->columns[i].name);
        if (!is_wanted || !replace)
            code = fail_there(prefix, name, wanted, replace, error);
    }
    if (directory)
        closedir(directory);
    free(folder);
    return code;
}
