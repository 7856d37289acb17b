/* SPDX-License-Identifier: Apache-2.0 */
/* listing.c — see listing.h. Names are ordered by their sequence numbers, never by times. */
#include "checkpoint/listing.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"

static const char prefix[] = "checkpoint-";
static const char suffix[] = ".rpc";
static const char *const kind_suffix[] = {
    [RP_NAME_CURRENT] = "",
    [RP_NAME_BAD] = ".bad",
    [RP_NAME_REWOUND] = ".rewound",
};

void rp_name_make(struct rp_name *name, uint64_t sequence, enum rp_name_kind kind)
{
    RP_ASSERT(sequence <= RP_SEQUENCE_MAX);
    name->sequence = sequence;
    name->kind = kind;
    snprintf(name->text, sizeof name->text, "%s%012" PRIu64 "%s%s", prefix, sequence, suffix,
             kind_suffix[kind]);
}

bool rp_name_parse(struct rp_name *name, const char *text)
{
    char digits[13] = {0};
    if (strncmp(text, prefix, strlen(prefix)) != 0)
        return false;
    strncpy(digits, text + strlen(prefix), sizeof digits - 1);
    uint64_t sequence;
    if (!rp_text_u64(digits, &sequence) || sequence > RP_SEQUENCE_MAX)
        return false;
    /* The name is made again and compared, so that 7, 007 and +7 are not taken for the same
     * sequence. */
    for (enum rp_name_kind kind = RP_NAME_CURRENT; kind <= RP_NAME_REWOUND; kind++) {
        rp_name_make(name, sequence, kind);
        if (strcmp(name->text, text) == 0)
            return true;
    }
    return false;
}

static int newest_first(const void *a, const void *b)
{
    const struct rp_name *left = a, *right = b;
    if (left->sequence != right->sequence)
        return left->sequence < right->sequence ? 1 : -1;
    return (int)left->kind - (int)right->kind;
}

static int listing_add(struct rp_listing *listing, const struct rp_name *name)
{
    struct rp_name *added = RP_APPEND(listing->names, listing->count);
    if (!added)
        return -ENOMEM;
    *added = *name;
    return 0;
}

int rp_names_open(DIR **stream_out, int dir, const char *path, struct rp_error *error)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *stream_out = fd < 0 ? NULL : fdopendir(fd);
    if (*stream_out)
        return 0;
    int code = -errno;
    if (fd >= 0)
        close(fd);
    return rp_fail(error, code, "check that the directory is there and readable",
                   "%s: cannot list: %s", path, rp_strerror(code));
}

int rp_listing_open(struct rp_listing *listing, int dir, const char *path, struct rp_error *error)
{
    *listing = (struct rp_listing){.dir = dir, .path = path};
    DIR *stream;
    int code = rp_names_open(&stream, dir, path, error);
    if (code < 0)
        return code;
    while (code == 0) {
        errno = 0;
        struct dirent *entry = readdir(stream);
        if (!entry) {
            code = -errno;
            break;
        }
        struct rp_name name;
        if (rp_name_parse(&name, entry->d_name))
            code = listing_add(listing, &name);
    }
    closedir(stream);
    if (code < 0) {
        rp_listing_free(listing);
        return rp_fail(error, code, NULL, "%s: cannot list: %s", path, rp_strerror(code));
    }
    if (listing->count > 0)
        qsort(listing->names, listing->count, sizeof *listing->names, newest_first);
    return 0;
}

void rp_listing_free(struct rp_listing *listing)
{
    free(listing->names);
    *listing = (struct rp_listing){0};
}
