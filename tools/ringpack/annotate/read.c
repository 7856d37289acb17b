/* SPDX-License-Identifier: Apache-2.0 */
/* read.c — the files of a column, in their order (annotate.h). */
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "annotate/annotate.h"
#include "base/text.h"
#include "convert/convert.h"
#include "object/url.h"

static int read_file(struct rp_gathered *values, const char *path, struct rp_error *error)
{
    const struct rp_form *form = rp_form_of(path);
    if (rp_text_has_suffix(path, ".npy"))
        return rp_annotate_read_npy(values, path, error);
    if (form->reading == RP_READ_JSONL || form->reading == RP_READ_JSON)
        return rp_annotate_read_lines(values, path, error);
    if (!strcmp(form->name, "parquet") || !strcmp(form->name, "arrow") ||
        !strcmp(form->name, "lance"))
        return rp_annotate_read_worker(values, path, form->name, error);
    return rp_fail(error, -RP_E_FORMAT, "write the numbers as one of these",
                   "%s: expected a name that ends in .parquet, .arrow, .lance, .jsonl (.gz, .zst) "
                   "or .npy",
                   path);
}

/* A file, or the files of a folder. */
static int read_place(struct rp_gathered *values, const char *path, struct rp_error *error)
{
    struct rp_inputs inputs = {0};
    struct stat info;
    bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if (!is_folder || rp_text_has_suffix(path, ".lance"))
        return read_file(values, path, error);
    int code = rp_inputs_add(&inputs, path, error);
    for (size_t i = 0; code == 0 && i < inputs.count; i++)
        code = read_file(values, inputs.files[i].path, error);
    rp_inputs_release(&inputs);
    return code;
}

static int read_pattern(struct rp_gathered *values, const char *pattern, struct rp_error *error)
{
    glob_t found = {0};
    int status = glob(pattern, GLOB_NOSORT, NULL, &found), code = 0;
    if (status == GLOB_NOMATCH)
        code = rp_fail(error, -ENOENT, NULL, "%s: no file has this name", pattern);
    else if (status != 0)
        code = rp_fail(error, -EIO, NULL, "%s: its folder cannot be listed", pattern);
    if (code == 0) /* glob would sort by the locale */
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, rp_text_compare);
    for (size_t i = 0; code == 0 && i < found.gl_pathc; i++)
        code = read_place(values, found.gl_pathv[i], error);
    globfree(&found);
    return code;
}

int rp_annotate_read(struct rp_gathered *values, const char *place, struct rp_error *error)
{
    if (rp_url_is(place))
        return rp_fail(error, -RP_E_USAGE, "copy it to this machine",
                       "column `%s`: expected a file, found a URL", values->column);
    return access(place, F_OK) == 0 ? read_place(values, place, error)
                                    : read_pattern(values, place, error);
}
