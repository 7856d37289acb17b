/* SPDX-License-Identifier: Apache-2.0 */
/* finish_sides.c — the names of side columns, from the keys `columns`, `label_columns` and
 * `document_columns`. */
#include <stdio.h>
#include <string.h>

#include "config/key.h"
#include "corpus/side_file.h"

static int fail(const struct rp_config *config, enum rp_key_index key, const char *hint,
                struct rp_error *error, const char *format, const char *name)
{
    return rp_key_fail(rp_config_key_place(config, key), rp_config_key_table[key].name, hint, error,
                       format, name);
}

static int add_name(struct rp_config *config, enum rp_key_index key, const char *name,
                    struct rp_error *error)
{
    struct rp_config_sides *sides = &config->sides;
    if (!rp_sidefile_is_name(name))
        return fail(config, key, NULL, error,
                    "expected a small letter or `_`, then small letters, digits or `_`, at most 31 "
                    "bytes, and no name of a section or of a profile's field; found `%.60s`",
                    name);
    for (uint32_t c = 0; c < sides->count; c++)
        if (!strcmp(sides->names[c], name))
            return fail(config, key, NULL, error, "column `%.60s` is given twice", name);
    if (sides->count == RP_SIDES_MAX)
        return fail(config, key, "put several values of a token into one column", error,
                    "expected at most 6 columns; `%.60s` is one more", name);
    sides->of[sides->count] = key == RP_KEY_columns         ? RP_SIDE_OF_TOKEN
                              : key == RP_KEY_label_columns ? RP_SIDE_OF_LABEL
                                                            : RP_SIDE_OF_DOCUMENT;
    snprintf(sides->names[sides->count++], RP_SIDE_NAME_BYTES, "%s", name);
    return 0;
}

static int add_names(struct rp_config *config, enum rp_key_index key, const char *text,
                     struct rp_error *error)
{
    int code = 0;
    if (text && text[strspn(text, " ")] == '\0') /* an empty list */
        return 0;
    while (text && code == 0) {
        char name[64];
        size_t skip = strspn(text, " "), length = strcspn(text + skip, ", ");
        const char *comma = strchr(text, ',');
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), text + skip);
        code = add_name(config, key, name, error);
        text = comma ? comma + 1 : NULL;
    }
    return code;
}

int rp_config_finish_sides(struct rp_config *config, struct rp_error *error)
{
    config->sides = (struct rp_config_sides){.count = 0};
    int code = add_names(config, RP_KEY_columns, config->columns, error);
    if (code == 0)
        code = add_names(config, RP_KEY_label_columns, config->label_columns, error);
    if (code == 0)
        code = add_names(config, RP_KEY_document_columns, config->document_columns, error);
    return code;
}
