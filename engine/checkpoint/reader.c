/* SPDX-License-Identifier: Apache-2.0 */
/* reader.c — see reader.h. A file is read into private memory and verified there, so later changes
 * of the file do not matter. The memory is allocated only after the length in the head was found
 * equal to the length of the file. */
#include "checkpoint/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/format.h"
#include "checkpoint/storage.h"

#define DIRECT_BYTES_MIN (2u << 20)
#define EIO_TRIES 3u

struct rp_checkpoint {
    struct rp_checkpoint_head head;
    char *path;
    uint8_t *bytes; /* the file: head.file_bytes */
    struct rp_checkpoint_damage damage;
};

static int fail_code(struct rp_error *error, int code, const char *path, const char *verb)
{
    return rp_fail(error, code,
                   code == -EACCES ? "run as the user who wrote it, or make it readable" : NULL,
                   "%s: cannot %s: %s", path, verb, rp_strerror(code));
}

/* Whether to repeat a call that failed with this errno. A transient EIO must not count as damage,
 * because an older checkpoint would be used then. */
static bool try_again(int error_number, unsigned *tries)
{
    return error_number == EINTR || (error_number == EIO && ++*tries < EIO_TRIES);
}

/* `data` and `offset` are multiples of a page, as direct reads require. */
static int read_exactly(int fd, uint8_t *data, uint64_t bytes, uint64_t offset, const char *path,
                        struct rp_error *error)
{
    for (unsigned tries = 0; bytes > 0;) {
        ssize_t got = rp_storage_system.read(&rp_storage_system, fd, data, bytes, offset);
        if (got < 0 && try_again((int)-got, &tries))
            continue;
        if (got < 0)
            return fail_code(error, (int)got, path, "read");
        if (got == 0)
            return rp_fail(error, -RP_E_CORRUPT, rp_checkpoint_damaged_hint,
                           "%s: damaged at byte %" PRIu64
                           ": the file became shorter while it was read",
                           path, offset);
        data += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return 0;
}

static int check_kind(int fd, const char *path, uint64_t *file_bytes, struct rp_error *error)
{
    struct stat info;
    unsigned tries = 0;
    while (fstat(fd, &info) < 0)
        if (!try_again(errno, &tries))
            return fail_code(error, -errno, path, "stat");
    if (!S_ISREG(info.st_mode))
        return rp_fail(error, -RP_E_FORMAT,
                       "give a file named checkpoint-*.rpc, or a directory of them",
                       "%s: not a checkpoint: expected a regular file", path);
    *file_bytes = (uint64_t)info.st_size;
    if (*file_bytes < RP_CHECKPOINT_BYTES_MIN)
        return rp_fail(error, -RP_E_CORRUPT, rp_checkpoint_damaged_hint,
                       "%s: damaged at byte %" PRIu64
                       ": expected at least %u bytes, found %" PRIu64,
                       path, *file_bytes, RP_CHECKPOINT_BYTES_MIN, *file_bytes);
    return 0;
}

/* Read the head of a file: `bytes` as it is in the file, and `head`, decoded. */
static int read_head(struct rp_checkpoint_head *head, uint8_t bytes[RP_CHECKPOINT_HEAD_BYTES],
                     int fd, const char *path, uint64_t *file_bytes, struct rp_error *error)
{
    int code = check_kind(fd, path, file_bytes, error);
    if (code < 0)
        return code;
    if (*file_bytes >= DIRECT_BYTES_MIN) /* so that the page cache keeps the corpus */
        rp_storage_direct(fd);
    code = read_exactly(fd, bytes, RP_CHECKPOINT_HEAD_BYTES, 0, path, error);
    return code < 0 ? code : rp_checkpoint_parse_head(head, bytes, *file_bytes, path, error);
}

static int read_checkpoint(struct rp_checkpoint *checkpoint, int fd, struct rp_error *error)
{
    _Alignas(RP_CHECKPOINT_PAGE_BYTES) uint8_t head[RP_CHECKPOINT_HEAD_BYTES];
    const char *path = checkpoint->path;
    uint64_t file_bytes = 0;
    int code = read_head(&checkpoint->head, head, fd, path, &file_bytes, error);
    if (code == 0 && !(checkpoint->bytes = rp_take_pages(file_bytes)))
        code = rp_fail(error, -ENOMEM, "free memory and try again; the file is untouched",
                       "%s: no memory for its %" PRIu64 " bytes", path, file_bytes);
    if (code < 0)
        return code;
    memcpy(checkpoint->bytes, head, sizeof head);
    code = read_exactly(fd, checkpoint->bytes + sizeof head, file_bytes - sizeof head, sizeof head,
                        path, error);
    return code < 0 ? code
                    : rp_checkpoint_verify(&checkpoint->head, checkpoint->bytes, path,
                                           &checkpoint->damage, error);
}

/* Frees `path`, now or with the checkpoint. `path` may be NULL: the caller's allocation failed. */
static int open_at(struct rp_checkpoint **out, int dir, const char *name, int flags, char *path,
                   struct rp_error *error)
{
    *out = NULL;
    struct rp_checkpoint *checkpoint = rp_calloc(1, sizeof *checkpoint);
    if (!checkpoint || !path) {
        free(checkpoint);
        free(path);
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory to open it", name);
    }
    checkpoint->path = path;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    unsigned tries = 0;
    int fd, code = 0;
    do
        fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags);
    while (fd < 0 && try_again(errno, &tries));
    if (fd < 0 && errno == ELOOP)
        code = rp_fail(error, -RP_E_FORMAT, "give the path of the file itself",
                       "%s: a symbolic link, which is not followed here", path);
    else if (fd < 0)
        code = fail_code(error, -errno, path, "open");
    else
        code = read_checkpoint(checkpoint, fd, error);
    if (fd >= 0)
        close(fd);
    if (code < 0) {
        rp_checkpoint_close(checkpoint);
        return code;
    }
    if (checkpoint->damage.contents)
        checkpoint->head.info.contents_end_row = checkpoint->head.info.next_row;
    *out = checkpoint;
    return 0;
}

int rp_checkpoint_open(struct rp_checkpoint **out, const char *path, struct rp_error *error)
{
    return open_at(out, AT_FDCWD, path, 0, strdup(path), error);
}

int rp_reader_open(struct rp_checkpoint **out, int dir, const char *path,
                   const struct rp_name *name, struct rp_error *error)
{
    int code = open_at(out, dir, name->text, O_NOFOLLOW, rp_asprintf("%s/%s", path, name->text),
                       error);
    if (code < 0 || (*out)->head.info.sequence == name->sequence)
        return code;
    code = rp_fail(error, -RP_E_CORRUPT, "give it the name it had when it was written",
                   "%s: its name does not fit: expected sequence %" PRIu64
                   ", the header says %" PRIu64,
                   (*out)->path, name->sequence, (*out)->head.info.sequence);
    rp_checkpoint_close(*out);
    *out = NULL;
    return code;
}

/* The head, and the file open for more reads; the caller closes *fd, also after an error. */
static int open_head(struct rp_checkpoint_head *head, int *fd, int dir, const char *path,
                     const struct rp_name *name, struct rp_error *error)
{
    _Alignas(RP_CHECKPOINT_PAGE_BYTES) uint8_t bytes[RP_CHECKPOINT_HEAD_BYTES];
    uint64_t file_bytes;
    *fd = openat(dir, name->text, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    if (*fd < 0)
        return fail_code(error, -errno, path, "open a checkpoint in it");
    int code = read_head(head, bytes, *fd, path, &file_bytes, error);
    if (code == 0 && head->info.sequence != name->sequence)
        code = rp_fail(error, -RP_E_CORRUPT, NULL, "%s/%s: its name does not fit", path,
                       name->text);
    return code;
}

int rp_reader_head(struct rp_checkpoint_head *head, int dir, const char *path,
                   const struct rp_name *name, struct rp_error *error)
{
    int fd, code = open_head(head, &fd, dir, path, name, error);
    if (fd >= 0)
        close(fd);
    return code;
}

int rp_reader_state(uint8_t page[RP_CHECKPOINT_PAGE_BYTES], uint64_t *bytes_out, int dir,
                    const char *path, const struct rp_name *name, struct rp_error *error)
{
    struct rp_checkpoint_head head;
    int fd, code = open_head(&head, &fd, dir, path, name, error);
    const struct rp_checkpoint_format_section *state = head.sections;
    while (code == 0 && state->type != RP_CHECKPOINT_STATE) /* every head has one */
        state++;
    if (code == 0)
        code = read_exactly(fd, page, RP_CHECKPOINT_PAGE_BYTES, state->offset, path, error);
    if (code == 0)
        *bytes_out = state->bytes;
    if (fd >= 0)
        close(fd);
    return code;
}

int rp_reader_row(uint64_t *row_out, int dir, const char *path, const struct rp_name *name,
                  struct rp_error *error)
{
    struct rp_checkpoint_head head;
    int code = rp_reader_head(&head, dir, path, name, error);
    if (code == 0)
        *row_out = head.info.next_row;
    return code;
}

void rp_checkpoint_close(struct rp_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    rp_give_pages(checkpoint->bytes, checkpoint->head.file_bytes);
    free(checkpoint->path);
    free(checkpoint);
}

bool rp_reader_is_damage(int code)
{
    return code == -RP_E_CORRUPT || code == -RP_E_FORMAT || code == -EIO;
}

const void *rp_reader_bytes(const struct rp_checkpoint *checkpoint, uint64_t *bytes_out)
{
    *bytes_out = checkpoint->head.file_bytes;
    return checkpoint->bytes;
}

const struct rp_checkpoint_info *rp_checkpoint_info(const struct rp_checkpoint *checkpoint)
{
    return &checkpoint->head.info;
}

const char *rp_checkpoint_path(const struct rp_checkpoint *checkpoint)
{
    return checkpoint->path;
}

bool rp_checkpoint_contents_bad(const struct rp_checkpoint *checkpoint)
{
    return checkpoint->damage.contents;
}

uint32_t rp_checkpoint_other_bad(const struct rp_checkpoint *checkpoint)
{
    return checkpoint->damage.other;
}

/* Whether an advisory section is damaged. Critical ones were verified when the file was opened. */
static bool is_damaged(const struct rp_checkpoint *checkpoint,
                       const struct rp_checkpoint_format_section *section)
{
    if (section->type == RP_CHECKPOINT_CONTENTS)
        return checkpoint->damage.contents;
    const void *data = checkpoint->bytes + section->offset;
    return section->type == RP_CHECKPOINT_CONTRACT &&
           !rp_hash128_equal(section->hash, rp_hash128(data, (size_t)section->bytes));
}

const void *rp_checkpoint_section(const struct rp_checkpoint *checkpoint,
                                  enum rp_checkpoint_section_type type, size_t *bytes_out)
{
    const struct rp_checkpoint_format_section *section = rp_checkpoint_find(&checkpoint->head,
                                                                            type);
    if (!section || is_damaged(checkpoint, section)) {
        *bytes_out = 0;
        return NULL;
    }
    *bytes_out = (size_t)section->bytes;
    return checkpoint->bytes + section->offset;
}
