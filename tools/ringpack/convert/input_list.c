/* SPDX-License-Identifier: Apache-2.0 */
/* input_list.c — the list of files to convert. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "convert/convert.h"

int rp_inputs_add_file(struct rp_inputs *inputs, const char *path, const struct rp_form *form,
                       bool named, struct rp_error *error)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return rp_fail(error, -errno, NULL, "%s: cannot open: %s", path, strerror(errno));
    if (form->reading == RP_READ_REFUSED && !inputs->as)
        return rp_fail(error, -RP_E_FORMAT, form->refusal, "%s: expected data, found a `%s` file",
                       path, form->name);
    if (inputs->count == inputs->capacity) {
        size_t capacity = inputs->capacity ? 2 * inputs->capacity : 256;
        struct rp_input *files = reallocarray(inputs->files, capacity, sizeof *files);
        if (!files)
            return rp_fail(error, -ENOMEM, NULL, "no memory for a list of %zu files", capacity);
        inputs->files = files;
        inputs->capacity = capacity;
    }
    struct rp_input *file = &inputs->files[inputs->count];
    *file = (struct rp_input){
        .path = strdup(path),
        .bytes = (uint64_t)info.st_size,
        .mtime_ns = (uint64_t)info.st_mtim.tv_sec * 1000000000u + (uint64_t)info.st_mtim.tv_nsec,
        .form = inputs->as ? inputs->as : form,
        .named = named,
    };
    if (!file->path)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the name of a file");
    inputs->count++;
    inputs->bytes += file->bytes;
    return 0;
}

void rp_inputs_release(struct rp_inputs *inputs)
{
    for (size_t i = 0; i < inputs->count; i++)
        free(inputs->files[i].path);
    free(inputs->files);
    *inputs = (struct rp_inputs){0};
}
