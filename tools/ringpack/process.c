/* SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/hide.h"
#include "base/thread.h"
#include "cmd.h"

#define MAIN_STACK_BYTES ((size_t)8 << 20)

/* ---- stacks ---------------------------------------------------------------------------------- */

static struct {
    ucontext_t before, inside;
    int (*run)(int argc, char **argv);
    int argc, status;
    char **argv;
} large;

static void run_inside(void)
{
    large.status = large.run(large.argc, large.argv);
}

/* The stack of the main thread grows up to the limit as it is at that moment, so a limit that is
 * raised now counts. */
static bool has_large_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= MAIN_STACK_BYTES)
        return true;
    limit.rlim_cur = limit.rlim_max < MAIN_STACK_BYTES ? limit.rlim_max : MAIN_STACK_BYTES;
    return setrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur >= MAIN_STACK_BYTES;
}

/* Threads that libraries start get their size from the limit as it was. */
static void choose_thread_stacks(void)
{
    pthread_attr_t threads;
    pthread_attr_init(&threads);
    if (pthread_attr_setstacksize(&threads, RP_STACK_BYTES) == 0)
        (void)pthread_setattr_default_np(&threads);
    pthread_attr_destroy(&threads);
}

int rp_process_run(int (*run)(int argc, char **argv), int argc, char **argv)
{
    choose_thread_stacks();
    if (has_large_stack())
        return run(argc, argv);
    long page = sysconf(_SC_PAGESIZE);
    void *stack = mmap(NULL, MAIN_STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, (size_t)page, PROT_NONE) != 0 ||
        getcontext(&large.inside) != 0) {
        struct rp_error error;
        rp_fail(&error, -ENOMEM, "raise the limit: `ulimit -s 8192`",
                "no memory for a stack, and the limit of the stack is small");
        return rp_cmd_report(&error);
    }
    large.run = run;
    large.argc = argc;
    large.argv = argv;
    large.inside.uc_stack.ss_sp = stack;
    large.inside.uc_stack.ss_size = MAIN_STACK_BYTES;
    large.inside.uc_link = &large.before;
    makecontext(&large.inside, run_inside, 0);
    (void)swapcontext(&large.before, &large.inside);
    return large.status;
}

/* ---- inherited settings ---------------------------------------------------------------------- */

void rp_process_hide_words(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *shown = argv[i], *copy = strdup(shown);
        if (copy && rp_hide_in_value(shown))
            argv[i] = copy;
        else
            free(copy);
    }
}

void rp_process_prepare(void)
{
    /* ignored by the parent, the kernel would throw away how our children end */
    signal(SIGCHLD, SIG_DFL);
    /* a mask for owners would make files that their owner cannot open again */
    umask(umask(S_IRWXG | S_IRWXO) & (S_IRWXG | S_IRWXO));
}

/* ---- the first process of a container -------------------------------------------------------- */

/* A signal of the terminal also reaches the child: it is in the same process group. */
static void forward(const siginfo_t *info, pid_t child)
{
    if (info->si_signo != SIGCHLD && info->si_code != SI_KERNEL)
        (void)kill(child, info->si_signo);
}

static void end_as(int status)
{
    _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

static void be_first_process(pid_t child, const sigset_t *all)
{
    /* the child's pipes end with the child */
    (void)syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0);
    for (;;) {
        siginfo_t info;
        int status;
        pid_t ended;
        if (sigwaitinfo(all, &info) > 0)
            forward(&info, child);
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
            if (ended == child)
                end_as(status);
    }
}

int rp_process_leave_first(void)
{
    sigset_t all, before;
    if (getpid() != 1)
        return 0;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid_t child = rp_fork();
    int code = child < 0 ? -errno : 0;
    if (child > 0)
        be_first_process(child, &all);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (code == 0)
        return 0;
    struct rp_error error;
    rp_fail(&error, code, "raise the limit of processes (pids.max of the container)",
            "the first process of a container cannot fork: %s", rp_strerror(code));
    return rp_cmd_report(&error);
}
