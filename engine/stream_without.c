/* SPDX-License-Identifier: Apache-2.0 */
#include "stream_without.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

#define FILE_BYTES_MAX (1u << 30)

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Ascending, each once. */
static uint64_t sort(uint64_t *numbers, uint64_t count)
{
    uint64_t kept = 0;
    qsort(numbers, count, sizeof *numbers, compare);
    for (uint64_t i = 0; i < count; i++)
        if (kept == 0 || numbers[kept - 1] != numbers[i])
            numbers[kept++] = numbers[i];
    return kept;
}

static int read_lines(uint64_t *numbers, uint64_t *count, char *text, const char *path,
                      uint64_t documents, struct rp_error *error)
{
    uint64_t line_number = 0;
    for (char *line; (line = strsep(&text, "\n")) != NULL;) {
        line_number++;
        line += strspn(line, " \t");
        line[strcspn(line, " \t\r")] = '\0';
        if (!*line || *line == '#')
            continue;
        if (!rp_text_u64(line, &numbers[*count]) || numbers[*count] >= documents)
            return rp_fail(error, -RP_E_CONFIG, "write one document number on each line",
                           "%s:%" PRIu64 ": expected a document below %" PRIu64 ", found `%.60s`",
                           path, line_number, documents, line);
        ++*count;
    }
    return 0;
}

int rp_without_read(struct rp_without *without, const char *path, uint64_t documents,
                    struct rp_error *error)
{
    char *text;
    size_t bytes, lines = 1;
    int code = rp_file_read_all(path, FILE_BYTES_MAX, &text, &bytes, error);
    if (code < 0)
        return code;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    uint64_t *numbers = rp_calloc(lines, sizeof *numbers), count = 0;
    without->documents = numbers;
    code = numbers ? read_lines(numbers, &count, text, path, documents, error)
                   : rp_fail(error, -ENOMEM, NULL, "out of memory for %s", path);
    free(text);
    if (code == 0)
        without->count = sort(numbers, count);
    return code;
}

void rp_without_free(struct rp_without *without)
{
    free((uint64_t *)(uintptr_t)without->documents);
    without->documents = NULL;
}
