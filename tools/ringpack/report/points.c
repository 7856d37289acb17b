/* SPDX-License-Identifier: Apache-2.0 */
/* points.c — the checkpoints of a report. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/contract.h"
#include "base/mem.h"
#include "report/report.h"

/* The names of the sources, from the contract; NULL where it has none. */
static char **names_of(const struct rp_checkpoint *checkpoint, uint32_t count)
{
    struct rp_contract contract;
    struct rp_field field;
    size_t bytes;
    uint32_t found = 0;
    const char *text = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTRACT, &bytes);
    char **names = rp_calloc(count, sizeof *names);
    if (names && text && rp_contract_open(&contract, text, bytes, NULL) == 0)
        for (size_t at = 0; rp_record_next(&contract.stream, &at, &field) && found < count;)
            if (field.name_bytes > 6 && !memcmp(field.name, "source", 6) &&
                !memcmp(field.name + field.name_bytes - 5, ".name", 5))
                names[found++] = strndup(field.value, field.value_bytes);
    return names;
}

static int take_token(struct rp_report_point *point, const struct rp_checkpoint *checkpoint)
{
    size_t bytes;
    struct rp_state_info token;
    const void *state = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes);
    int code = rp_state_info(state, bytes, &token, NULL);
    if (code < 0)
        return code;
    point->emitted = token.counts.emitted;
    point->padding = token.counts.padding;
    point->documents = token.counts.documents;
    point->source_count = token.source_count;
    point->names = names_of(checkpoint, token.source_count);
    point->sources = rp_calloc(token.source_count, sizeof *point->sources);
    return point->sources && point->names
               ? rp_state_ledger(state, bytes, point->sources, token.source_count, NULL)
               : -ENOMEM;
}

static void free_point(struct rp_report_point *point)
{
    for (uint32_t s = 0; point->names && s < point->source_count; s++)
        free(point->names[s]);
    free(point->names);
    free(point->sources);
}

/* A checkpoint that vanishes, because the engine prunes it, or is damaged is counted. */
static int add_point(struct rp_report *report, const char *path, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint;
    struct stat status;
    int code = rp_checkpoint_open(&checkpoint, path, error);
    if (code < 0)
        return code;
    struct rp_report_point point = {.info = *rp_checkpoint_info(checkpoint)};
    if (stat(path, &status) == 0) {
        point.bytes = (uint64_t)status.st_size;
        point.at = (double)status.st_mtim.tv_sec + (double)status.st_mtim.tv_nsec * 1e-9;
    }
    code = take_token(&point, checkpoint);
    rp_checkpoint_close(checkpoint);
    if (code < 0) {
        free_point(&point);
        return rp_fail(error, code, NULL, "%s: its state token cannot be read", path);
    }
    report->points[report->point_count++] = point;
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct rp_report_point *left = a, *right = b;
    return left->info.sequence < right->info.sequence   ? -1
           : left->info.sequence > right->info.sequence ? 1
                                                        : 0;
}

static int read_directory(struct rp_report *report, const char *path, struct rp_error *error)
{
    struct rp_checkpoint_entry *entries;
    size_t count;
    int code = rp_checkpoint_list(path, &entries, &count, error);
    if (code < 0)
        return code;
    report->points = rp_calloc(count, sizeof *report->points);
    if (!report->points)
        code = rp_fail(error, -ENOMEM, NULL, "out of memory for %zu checkpoints", count);
    for (size_t i = 0; i < count && code >= 0; i++) {
        report->rewound += entries[i].status == RP_CHECKPOINT_REWOUND;
        report->set_aside += entries[i].status == RP_CHECKPOINT_SET_ASIDE;
        report->damaged += entries[i].status == RP_CHECKPOINT_BAD;
        if (entries[i].status != RP_CHECKPOINT_GOOD)
            continue;
        char *file = rp_asprintf("%s/%s", path, entries[i].name);
        if (!file || add_point(report, file, NULL) < 0)
            report->damaged++;
        free(file);
    }
    rp_checkpoint_list_free(entries, count);
    qsort(report->points, report->point_count, sizeof *report->points, by_time);
    return code < 0 ? code : 0;
}

int rp_report_read(struct rp_report *report, const char *path, struct rp_error *error)
{
    struct stat status;
    report->path = path;
    if (stat(path, &status) != 0)
        return rp_fail(error, -errno, "give the name of a run, a checkpoint or a directory of them",
                       "%s: no engine of that name answers, and no file has that name: %s", path,
                       strerror(errno));
    if (S_ISDIR(status.st_mode))
        return read_directory(report, path, error);
    report->points = rp_calloc(1, sizeof *report->points);
    return report->points ? add_point(report, path, error)
                          : rp_fail(error, -ENOMEM, NULL, "out of memory for a checkpoint");
}

void rp_report_free(struct rp_report *report)
{
    for (size_t i = 0; i < report->point_count; i++)
        free_point(&report->points[i]);
    free(report->points);
    json_decref(report->stat);
}
