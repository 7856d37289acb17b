/* SPDX-License-Identifier: Apache-2.0 */
/* deny_io_uring.h — from now on the kernel refuses this thread every ring, and the threads and
 * processes that it starts: as a container does, or a limit that is reached while an engine runs.
 * Existing rings continue. It cannot be undone, so a test does it in a child, or last. */
#ifndef RP_TESTS_DENY_IO_URING_H
#define RP_TESTS_DENY_IO_URING_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* NULL, or the fault. */
static inline const char *deny_io_uring(int with_errno)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)with_errno),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        return "cannot set a seccomp filter";
    return NULL;
}

#endif
