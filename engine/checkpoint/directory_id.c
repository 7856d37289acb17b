/* SPDX-License-Identifier: Apache-2.0 */
/* directory_id.c — see directory_id.h.
 *
 * Invariants
 *
 *   I1  An id is made once, by the holder of the directory's lock, and never changes. It is durable
 *       before rp_directory_id_make returns. A copy of the directory has the same id.
 *
 *   I2  At most RP_DIRECTORY_ID_BYTES bytes of the file are read, whatever its length. */
#include "checkpoint/directory_id.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"

#define PAGE_BYTES 4096u /* writer.c writes whole pages */
#define DIGITS (RP_DIRECTORY_ID_BYTES - 1)

bool rp_directory_id_is_valid(const char *id)
{
    return strlen(id) == DIGITS && strspn(id, "0123456789abcdef") == DIGITS;
}

int rp_directory_id_read(const struct rp_locked_dir *locked, char id[RP_DIRECTORY_ID_BYTES],
                         struct rp_error *error)
{
    char text[RP_DIRECTORY_ID_BYTES] = {0};
    id[0] = 0;
    int fd = openat(locked->dir, RP_DIRECTORY_ID_NAME,
                    O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return 0;
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text);
    int code = got < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    if (code < 0)
        return rp_fail(error, code, "make the file readable for this user",
                       "%s/" RP_DIRECTORY_ID_NAME ": cannot read it: %s", locked->path,
                       rp_strerror(code));
    bool is_whole = got == (ssize_t)sizeof text && text[DIGITS] == '\n';
    text[DIGITS] = 0;
    if (is_whole && rp_directory_id_is_valid(text))
        memcpy(id, text, sizeof text);
    else
        rp_log(RP_LOG_WARNING, "%s/" RP_DIRECTORY_ID_NAME ": damaged: the directory has no id",
               locked->path);
    return 0;
}

int rp_directory_id_make(struct rp_locked_dir *locked, char id[RP_DIRECTORY_ID_BYTES],
                         struct rp_error *error)
{
    struct rp_storage *storage = locked->writer.storage;
    struct rp_hash128 number;
    uint8_t page[PAGE_BYTES] = {0};
    RP_ASSERT(!locked->trial.is_under_way);
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return rp_fail(error, -errno, NULL, "%s: no random bytes for the id of the directory: %s",
                       locked->path, rp_strerror(-errno));
    rp_hash128_hex(number, id);
    memcpy(page, id, DIGITS);
    page[DIGITS] = '\n';
    (void)storage->unlink(storage, locked->dir, RP_DIRECTORY_ID_NAME); /* a damaged one */
    return rp_writer_put_bytes(&locked->writer, RP_DIRECTORY_ID_NAME, page, sizeof page, error);
}
