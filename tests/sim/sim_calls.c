/* SPDX-License-Identifier: Apache-2.0 */
/* sim_calls.c — system calls on open files. Reads of token files and calls of a save fail as often
 * as sim_faults says. */
#include "sim_wrap.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sim_files.h"

#define DIRECT_BYTES 4096u /* alignment for O_DIRECT, of offsets, lengths and memory alike */

/* Token files are opened for reading and exist from the start; a save opens for writing. */
static bool is_token_file(const struct sim_descriptor *descriptor)
{
    return descriptor->node->kind == SIM_FILE && (descriptor->flags & O_ACCMODE) == O_RDONLY &&
           !descriptor->node->writes && !sim_is_saved(descriptor->node);
}

static int save_fault(const struct sim_node *node, const char *what)
{
    if (!sim_is_saved(node) || !sim_fault(sim_faults.save_error, what))
        return 0;
    return sim_chance(&sim.random, 500) ? EIO : ENOSPC;
}

/* ---- reading --------------------------------------------------------------------------------- */

static ssize_t read_at(struct sim_descriptor *d, void *data, size_t bytes, uint64_t offset)
{
    struct sim_node *node = d->node;
    bool is_direct = (d->flags & O_DIRECT) != 0;
    if (is_direct && ((offset | bytes | (uintptr_t)data) & (DIRECT_BYTES - 1)))
        return fail_with(EINVAL);
    if (is_token_file(d)) {
        if (sim_fault(sim_faults.interrupted, "EINTR in a read"))
            return fail_with(EINTR);
        if (sim_fault(sim_faults.read_error, "EIO in a read"))
            return fail_with(EIO);
        static const char disk;
        if (sim_fault(sim_faults.delay, "a slow read"))
            (void)sim_wait(&disk, sim.now_ns + sim_below(&sim.random, 3 * SIM_MS));
        size_t least = is_direct ? DIRECT_BYTES : 1;
        if (bytes > least && sim_fault(sim_faults.short_read, "a short read"))
            bytes = least * (1 + sim_below(&sim.random, bytes / least - 1));
    }
    if (offset >= node->bytes)
        return 0;
    if (bytes > node->bytes - offset)
        bytes = node->bytes - offset;
    memcpy(data, node->data + offset, bytes);
    if (!is_direct)
        sim_pages_bring(node, offset, bytes);
    if (is_token_file(d) && bytes && sim_fault(sim_faults.flip, "a wrong bit in a read"))
        ((uint8_t *)data)[sim_below(&sim.random, bytes)] ^= 16;
    return (ssize_t)bytes;
}

WRAP(ssize_t, pread, int fd, void *data, size_t bytes, off_t offset)
{
    if (!sim.current)
        return __real_pread(fd, data, bytes, offset);
    sim_step();
    struct sim_descriptor *d = sim_descriptor_of(fd);
    return d ? read_at(d, data, bytes, (uint64_t)offset) : -1;
}

/* Only called with RWF_NOWAIT. */
WRAP(ssize_t, preadv2, int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    if (!sim.current)
        return __real_preadv2(fd, parts, count, offset, flags);
    sim_step();
    struct sim_descriptor *d = sim_descriptor_of(fd);
    if (!d || !sim_pages_hold(d->node, (uint64_t)offset, parts->iov_len))
        return fail_with(d ? EAGAIN : EBADF);
    return read_at(d, parts->iov_base, parts->iov_len, (uint64_t)offset);
}

WRAP(ssize_t, read, int fd, void *data, size_t bytes)
{
    if (!sim.current)
        return __real_read(fd, data, bytes);
    sim_step();
    struct sim_node *node = sim_node_of(fd);
    if (!node)
        return -1;
    if (node->kind == SIM_EVENTFD) {
        if (node->count == 0)
            return fail_with(EAGAIN);
        memcpy(data, &node->count, sizeof node->count);
        node->count = 0;
        return sizeof node->count;
    }
    if (node->kind == SIM_SIGNALFD) {
        if (node->process->signals == 0)
            return fail_with(EAGAIN);
        uint32_t number = (uint32_t)__builtin_ctz(node->process->signals);
        node->process->signals &= ~(1u << number);
        memset(data, 0, bytes);
        memcpy(data, &number, sizeof number);
        return (ssize_t)bytes;
    }
    sim_fail("read of such a descriptor is not simulated");
}

/* ---- writing --------------------------------------------------------------------------------- */

WRAP(ssize_t, pwrite, int fd, const void *data, size_t bytes, off_t offset)
{
    if (!sim.current)
        return __real_pwrite(fd, data, bytes, offset);
    sim_step();
    struct sim_node *node = sim_node_of(fd);
    if (!node)
        return -1;
    int code = save_fault(node, "a write fails");
    if (code)
        return fail_with(code);
    if (bytes > 4096 && sim_is_saved(node) && sim_fault(sim_faults.save_error, "a short write"))
        bytes = 4096 * (1 + sim_below(&sim.random, bytes / 4096 - 1));
    if ((uint64_t)offset + bytes > node->bytes)
        sim_node_resize(node, (uint64_t)offset + bytes);
    memcpy(node->data + offset, data, bytes);
    sim_note_write(node, (uint64_t)offset, bytes);
    return (ssize_t)bytes;
}

WRAP(ssize_t, write, int fd, const void *data, size_t bytes)
{
    if (!sim.current)
        return __real_write(fd, data, bytes);
    if (fd == STDERR_FILENO) { /* the log: not a step, so that --trace has no effect */
        sim_trace("%.*s", (int)bytes - 1, (const char *)data);
        return (ssize_t)bytes;
    }
    struct sim_descriptor *descriptor = sim_descriptor_of(fd);
    if (!descriptor)
        return -1;
    struct sim_node *node = descriptor->node;
    if (node->kind == SIM_FILE) {
        ssize_t put = __wrap_pwrite(fd, data, bytes, (off_t)descriptor->position);
        descriptor->position += put > 0 ? (uint64_t)put : 0;
        return put;
    }
    sim_step();
    if (node->kind != SIM_EVENTFD)
        sim_fail("write to such a descriptor is not simulated");
    uint64_t more;
    memcpy(&more, data, sizeof more);
    node->count += more;
    sim_poke();
    return (ssize_t)bytes;
}

WRAP(int, fsync, int fd)
{
    sim_step();
    struct sim_node *node = sim_node_of(fd);
    int code = node ? save_fault(node, "fsync fails") : EBADF;
    if (code)
        return fail_with(code); /* no write has become durable */
    sim_sync(node);
    return 0;
}

WRAP(int, ftruncate, int fd, off_t bytes)
{
    sim_step();
    struct sim_node *node = sim_node_of(fd);
    if (!node)
        return -1;
    sim_node_resize(node, (uint64_t)bytes);
    return 0;
}

WRAP(int, fallocate, int fd, int mode, off_t offset, off_t bytes)
{
    (void)mode;
    sim_step();
    struct sim_node *node = sim_node_of(fd);
    int code = node ? save_fault(node, "no room is left") : EBADF;
    if (code)
        return fail_with(code);
    if ((uint64_t)(offset + bytes) > node->bytes)
        sim_node_resize(node, (uint64_t)(offset + bytes));
    return 0;
}

/* ---- the rest -------------------------------------------------------------------------------- */

WRAP(int, flock, int fd, int operation)
{
    (void)operation; /* LOCK_EX | LOCK_NB */
    sim_step();
    struct sim_node *node = sim_node_of(fd);
    if (!node)
        return -1;
    if (node->lock_fd >= 0 && node->lock_fd != fd)
        return fail_with(EWOULDBLOCK);
    node->lock_fd = fd;
    node->lock_holder = sim.current->process;
    return 0;
}

WRAP(int, fcntl, int fd, int command, ...)
{
    struct sim_descriptor *descriptor = sim_descriptor_of(fd);
    if (!descriptor)
        return -1;
    if (command == F_GETFL)
        return descriptor->flags;
    if (command == F_SETFL) {
        va_list arguments;
        va_start(arguments, command);
        descriptor->flags = va_arg(arguments, int);
        va_end(arguments);
    }
    return command == F_GET_SEALS ? F_SEAL_SHRINK : 0;
}

static int fill(const struct sim_node *node, struct stat *out)
{
    if (!node)
        return -1;
    mode_t mode = node->kind == SIM_DIRECTORY     ? S_IFDIR | 0700
                  : node->kind == SIM_SOCKET_NAME ? S_IFSOCK | 0600
                                                  : S_IFREG | 0600;
    *out = (struct stat){.st_mode = mode,
                         .st_uid = geteuid(),
                         .st_size = (off_t)node->bytes,
                         .st_dev = 1,
                         .st_ino = node->number};
    return 0;
}

WRAP(int, fstat, int fd, struct stat *out)
{
    if (!sim.current)
        return __real_fstat(fd, out);
    sim_step();
    return fill(sim_node_of(fd), out);
}

WRAP(int, stat, const char *path, struct stat *out)
{
    if (!sim.current)
        return __real_stat(path, out);
    sim_step();
    return fill(sim_lookup(path), out);
}

WRAP(int, fstatat, int at, const char *path, struct stat *out, int flags)
{
    (void)flags;
    sim_step();
    return fill(sim_look(at, path), out);
}

/* It does not report O_DIRECT's alignment, as kernels before 6.1. */
WRAP(int, statx, int at, const char *path, int flags, unsigned mask, struct statx *out)
{
    if (!sim.current)
        return __real_statx(at, path, flags, mask, out);
    return fail_with(ENOSYS);
}

WRAP(int, fchmod, int fd, mode_t mode)
{
    (void)mode;
    return sim_node_of(fd) ? 0 : -1;
}

WRAP(int, memfd_create, const char *name, unsigned flags)
{
    (void)name;
    (void)flags;
    sim_step();
    return sim_descriptor_new(sim_node_new(SIM_MEMORY), O_RDWR);
}
