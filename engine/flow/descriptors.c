/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/descriptors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/mem.h"

int rp_descriptors_limit(struct rp_descriptors *descriptors, uint32_t open_max,
                         struct rp_error *error)
{
    RP_ASSERT(open_max > 0 && descriptors->open_count == 0);
    if (open_max >= descriptors->open_max)
        return 0;
    descriptors->open_max = open_max;
    if (!descriptors->list)
        descriptors->list = rp_calloc(descriptors->file_count, sizeof *descriptors->list);
    return descriptors->list ? 0
                             : rp_fail(error, -ENOMEM, NULL,
                                       "out of memory for a table of %" PRIu32 " token files",
                                       descriptors->file_count);
}

bool rp_descriptors_allow(uint64_t all)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) != 0 || all <= limit.rlim_cur;
}

int rp_descriptors_open(struct rp_descriptors *descriptors, uint32_t file_count, uint32_t others,
                        struct rp_error *error)
{
    *descriptors = (struct rp_descriptors){.file_count = file_count, .open_max = file_count};
    struct rlimit limit;
    uint64_t all = (uint64_t)file_count + others;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || all <= limit.rlim_cur)
        return 0;
    uint64_t least = (uint64_t)others + RP_DESCRIPTORS_MIN;
    char hint[128];
    snprintf(hint, sizeof hint, "raise it (`ulimit -n %" PRIu64 "`)", least);
    if (limit.rlim_cur < least)
        return rp_fail(error, -RP_E_RESOURCE, hint,
                       "open files: expected a limit of at least %" PRIu64 ", found %" PRIu64,
                       least, (uint64_t)limit.rlim_cur);
    int code = rp_descriptors_limit(descriptors, (uint32_t)(limit.rlim_cur - others), error);
    if (code < 0)
        return code;
    rp_log(RP_LOG_INFO,
           "%" PRIu32 " token files share %" PRIu32 " descriptors and are opened in turn; "
           "`ulimit -n %" PRIu64 "` keeps all open",
           file_count, descriptors->open_max, all);
    return 0;
}

void rp_descriptors_close(struct rp_descriptors *descriptors)
{
    free(descriptors->list);
    *descriptors = (struct rp_descriptors){0};
}

bool rp_descriptors_are_used_up(const struct rp_descriptors *descriptors, uint32_t *file,
                                uint64_t *ticket)
{
    if (!descriptors->list || descriptors->open_count < descriptors->open_max)
        return false;
    RP_ASSERT(descriptors->oldest > 0); /* open_max is at least 1, so a file is open */
    *file = descriptors->oldest - 1;
    *ticket = descriptors->list[*file].last_ticket;
    return true;
}

static void link_newest(struct rp_descriptors *d, uint32_t file)
{
    d->list[file].older = d->newest;
    d->list[file].newer = 0;
    if (d->newest)
        d->list[d->newest - 1].newer = file + 1;
    else
        d->oldest = file + 1;
    d->newest = file + 1;
}

static void unlink_file(struct rp_descriptors *d, uint32_t file)
{
    const struct rp_descriptor *entry = &d->list[file];
    if (entry->newer)
        d->list[entry->newer - 1].older = entry->older;
    else
        d->newest = entry->older;
    if (entry->older)
        d->list[entry->older - 1].newer = entry->newer;
    else
        d->oldest = entry->newer;
}

void rp_descriptors_add(struct rp_descriptors *descriptors, uint32_t file)
{
    if (!descriptors->list)
        return;
    RP_ASSERT(descriptors->open_count < descriptors->open_max);
    descriptors->open_count++;
    descriptors->list[file].last_ticket = 0;
    link_newest(descriptors, file);
}

void rp_descriptors_remove(struct rp_descriptors *descriptors, uint32_t file)
{
    if (!descriptors->list)
        return;
    RP_ASSERT(descriptors->open_count > 0);
    descriptors->open_count--;
    unlink_file(descriptors, file);
}

void rp_descriptors_use(struct rp_descriptors *descriptors, uint32_t file, uint64_t ticket)
{
    if (!descriptors->list || descriptors->list[file].last_ticket == ticket + 1)
        return;
    RP_ASSERT(descriptors->list[file].last_ticket <= ticket);
    descriptors->list[file].last_ticket = ticket + 1;
    unlink_file(descriptors, file);
    link_newest(descriptors, file);
}

void rp_descriptors_restart(struct rp_descriptors *descriptors)
{
    for (uint32_t at = descriptors->newest; at; at = descriptors->list[at - 1].older)
        descriptors->list[at - 1].last_ticket = 0;
}
