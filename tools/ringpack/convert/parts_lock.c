/* SPDX-License-Identifier: Apache-2.0 */
/* parts_lock.c — who may write to PREFIX.parts, and when PREFIX itself is written.
 *
 * PREFIX.parts/lock is locked by each conversion that uses the folder, as long as it runs:
 * exclusively, or together with others that make some parts each (--part). The folder goes at the
 * end, and the lock with it, so a lock counts only while its path still leads to it. The files of
 * PREFIX are published by one conversion at a time, under a lock of their directory. A file system
 * without locks is used without. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock_holder.h"
#include "base/mem.h"
#include "base/own_dir.h"
#include "base/text.h"
#include "convert/parts.h"
#include "interrupt.h"

#define REPLACED_MAX 100u
#define OUTPUT_PATIENCE_S 600u
#define TELL_AFTER_S 1u
#define NS_PER_S UINT64_C(1000000000)

static bool is_unsupported(int code)
{
    return code == -ENOLCK || code == -EOPNOTSUPP || code == -ENOSYS || code == -EINVAL ||
           code == -EBADF;
}

/* 1: it is locked, 0: its path leads to another file now, or to none. */
static int lock_file(int fd, const char *path, bool shared)
{
    struct stat own, found;
    int code = shared ? (flock(fd, LOCK_SH | LOCK_NB) < 0 ? -errno : 0) : rp_file_lock(fd);
    if (is_unsupported(code))
        code = 0;
    if (code < 0)
        return code;
    return fstat(fd, &own) == 0 && stat(path, &found) == 0 && own.st_dev == found.st_dev &&
           own.st_ino == found.st_ino;
}

static int fail_busy(const struct rp_conversion *conversion, int lock, int code,
                     struct rp_error *error)
{
    char holder[RP_LOCK_HOLDER_BYTES];
    if (code == -EWOULDBLOCK)
        return rp_fail(error, -RP_E_BUSY, "let it end, or choose another -o",
                       "%s: another conversion writes to it: %s", conversion->folder,
                       rp_lock_holder(lock, holder));
    return rp_fail(error, code, "choose another -o", "%s: cannot lock it: %s", conversion->folder,
                   strerror(-code));
}

static int try_take(struct rp_conversion *conversion, const char *path, struct rp_error *error)
{
    const struct rp_convert_options *options = conversion->options;
    int code = options->merge ? 0 : rp_dir_make(conversion->folder, error);
    if (code < 0)
        return code;
    int folder = rp_own_dir_open(conversion->folder, "folder of parts",
                                 "choose another -o, in a directory of your own", error);
    if (folder < 0)
        return folder;
    int fd = openat(folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    code = fd < 0 ? rp_file_fail(error, path, "open") : lock_file(fd, path, options->parts > 0);
    close(folder);
    if (fd >= 0 && code < 0)
        code = fail_busy(conversion, fd, code, error);
    if (code == 1)
        conversion->lock = fd;
    else if (fd >= 0)
        close(fd);
    return code;
}

int rp_parts_take(struct rp_conversion *conversion, struct rp_error *error)
{
    if (!conversion->folder || (conversion->options->merge && access(conversion->folder, F_OK) < 0))
        return 0;
    char *path = rp_asprintf("%s/lock", conversion->folder);
    int code = path ? 0 : rp_fail(error, -ENOMEM, NULL, "no memory for a name");
    for (unsigned i = 0; path && code == 0 && i < REPLACED_MAX; i++)
        code = try_take(conversion, path, error);
    free(path);
    if (code == 0)
        return rp_fail(error, -RP_E_BUSY, "choose another -o", "%s: it is replaced again and again",
                       conversion->folder);
    return code < 0 ? code : 0;
}

void rp_parts_give_back(struct rp_conversion *conversion, bool remove)
{
    if (conversion->lock < 0)
        return;
    char *path = rp_asprintf("%s/lock", conversion->folder);
    if (remove && path && flock(conversion->lock, LOCK_EX | LOCK_NB) == 0) {
        unlink(path);
        rmdir(conversion->folder);
    }
    free(path);
    close(conversion->lock);
    conversion->lock = -1;
}

/* ---- the directory of the output ------------------------------------------------------------- */

/* Conversions have it while they publish, which is long where the tokens of a large output are
 * read once more for its sidecar. Any other program may lock it, and keep it. */
static uint64_t patience_s(void)
{
    uint64_t seconds;
    const char *given = getenv("RINGPACK_LOCK_PATIENCE");
    bool is_good = given && rp_text_u64(given, &seconds) && seconds <= UINT32_MAX;
    return is_good ? seconds : OUTPUT_PATIENCE_S;
}

static int fail_held(int fd, const char *directory, uint64_t waited_s, struct rp_error *error)
{
    char holder[RP_LOCK_HOLDER_BYTES];
    return rp_fail(error, -RP_E_BUSY,
                   "end that process, or wait for it, and run the command again; or choose -o in "
                   "another directory; " RP_CONVERT_IS_SAFE,
                   "%s: %s has had its lock (flock) for %" PRIu64
                   " s: expected only a conversion that publishes its output there to hold it",
                   directory, rp_lock_holder(fd, holder), waited_s);
}

static int wait_for_lock(int fd, const char *directory, struct rp_error *error)
{
    char holder[RP_LOCK_HOLDER_BYTES];
    uint64_t patience = patience_s(), begin_ns = rp_now_ns();
    bool is_told = false;
    for (;;) {
        int code = rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
        if (code == 0)
            code = rp_file_lock(fd);
        if (code != -EWOULDBLOCK)
            return is_unsupported(code) ? 0 : code;
        uint64_t waited_ns = rp_now_ns() - begin_ns;
        if (waited_ns >= patience * NS_PER_S)
            return fail_held(fd, directory, waited_ns / NS_PER_S, error);
        if (!is_told && waited_ns >= TELL_AFTER_S * NS_PER_S) {
            fprintf(stderr,
                    "ringpack: %s: waiting up to %" PRIu64 " s for %s, which has locked it\n",
                    directory, patience, rp_lock_holder(fd, holder));
            is_told = true;
        }
    }
}

int rp_output_lock(const char *prefix, struct rp_error *error)
{
    char *directory = rp_path_directory(prefix);
    int fd = directory ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int code = fd >= 0     ? wait_for_lock(fd, directory, error)
               : directory ? rp_file_fail(error, directory, "open")
                           : rp_fail(error, -ENOMEM, NULL, "no memory for a name");
    free(directory);
    if (code == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return code;
}
