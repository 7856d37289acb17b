/* SPDX-License-Identifier: Apache-2.0 */
/* The name of the directory is NAME_PREFIX and random letters. It is locked while its job lives, so
 * a directory that is not locked belongs to a job that was killed. */
#include "job/job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "interrupt.h"

#define NAME_PREFIX "ringpack-job-"
#define READY_TIMEOUT_MS 60000
#define LOG_END_BYTES 600

/* ---- the directory --------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    (void)remove(path);
    return 0;
}

void rp_job_remove(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *parent_directory(void)
{
    const char *directory = getenv("TMPDIR");
    return directory && directory[0] == '/' ? directory : "/tmp";
}

/* Lock a job's directory. -1 if it is locked, or belongs to another user. */
static int lock_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == getuid() && rp_file_lock(fd) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void remove_left_over(void)
{
    DIR *directory = opendir(parent_directory());
    for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        if (strncmp(entry->d_name, NAME_PREFIX, strlen(NAME_PREFIX)) != 0)
            continue;
        char *path = rp_asprintf("%s/%s", parent_directory(), entry->d_name);
        int fd = path ? lock_directory(path) : -1;
        if (fd >= 0) {
            rp_job_remove(path);
            close(fd);
        }
        free(path);
    }
    if (directory)
        closedir(directory);
}

int rp_job_open(struct rp_job *job, const char *binary, bool verbose, struct rp_error *error)
{
    *job = (struct rp_job){.binary = binary ? binary : "/proc/self/exe",
                           .verbose = verbose,
                           .lock_fd = -1,
                           .log_fd = -1};
    rp_interrupt_catch();
    signal(SIGPIPE, SIG_IGN);
    remove_left_over();
    char *dir = rp_asprintf("%s/" NAME_PREFIX "XXXXXX", parent_directory());
    if (!dir || !mkdtemp(dir)) {
        free(dir);
        return rp_fail(error, -errno, "set TMPDIR to a directory that can be written",
                       "%s: cannot make a temporary directory: %s", parent_directory(),
                       rp_strerror(-errno));
    }
    job->dir = dir;
    job->lock_fd = lock_directory(dir);
    char *log = rp_job_path(job, "log");
    job->log_fd = log ? open(log, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    free(log);
    if (job->lock_fd < 0 || job->log_fd < 0) {
        int code = errno ? -errno : -EPERM; /* errno 0: the directory belongs to another user */
        rp_job_close(job);
        return rp_fail(error, code, "set TMPDIR to a directory that can be written",
                       "%s: cannot make the job's files: %s", parent_directory(),
                       rp_strerror(code));
    }
    return 0;
}

void rp_job_close(struct rp_job *job)
{
    if (!job->dir)
        return;
    rp_job_remove(job->dir);
    if (job->log_fd >= 0)
        close(job->log_fd);
    if (job->lock_fd >= 0)
        close(job->lock_fd);
    free(job->dir);
    job->dir = NULL;
}

char *rp_job_path(const struct rp_job *job, const char *format, ...)
{
    char name[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    return rp_asprintf("%s/%s", job->dir, name);
}

/* ---- command lines --------------------------------------------------------------------------- */

void rp_words_add(struct rp_words *words, const char *format, ...)
{
    char *word = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (words->count + 1 == RP_JOB_WORDS_MAX || vasprintf(&word, format, arguments) < 0)
        words->failed = true;
    else
        words->word[words->count++] = word;
    va_end(arguments);
}

void rp_words_free(struct rp_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->word[i]);
    *words = (struct rp_words){.count = 0};
}

/* ---- starting -------------------------------------------------------------------------------- */

/* In the child: restore the signals of a program that a shell has started, die with `parent`, and
 * redirect the output. */
static void become_child(const struct rp_job *job, pid_t parent)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigaction(SIGTERM, &standard, NULL);
    sigaction(SIGHUP, &standard, NULL);
    sigaction(SIGPIPE, &standard, NULL);
    signal(SIGINT, SIG_IGN); /* Ctrl-C reaches the whole group, but the parent ends its children */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    int out = job->verbose ? STDERR_FILENO : job->log_fd;
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
}

static int forked(struct rp_child *child, const char *what, pid_t pid, struct rp_error *error)
{
    if (pid < 0)
        return rp_fail(error, -errno, NULL, "cannot start %s: %s", what, rp_strerror(-errno));
    child->pid = pid;
    child->status = 0;
    child->what = what;
    child->started_ns = rp_now_ns();
    return 0;
}

static int check_words(const struct rp_words *words, struct rp_error *error)
{
    return words->failed ? rp_fail(error, -ENOMEM, NULL, "the command line of a child is too long")
                         : 0;
}

int rp_job_spawn(struct rp_job *job, struct rp_child *child, const char *what,
                 const struct rp_words *words, struct rp_error *error)
{
    int code = check_words(words, error);
    if (code < 0)
        return code;
    fflush(NULL);
    pid_t parent = getpid(), pid = rp_fork();
    if (pid == 0) {
        become_child(job, parent);
        execvp(words->word[0], words->word);
        fprintf(stderr, "%s: cannot run it: %s\n", words->word[0], rp_strerror(-errno));
        _exit(127);
    }
    return forked(child, what, pid, error);
}

static void ended(struct rp_child *child, int status)
{
    child->pid = 0;
    child->status = status;
    if (child->lifeline_fd >= 0)
        close(child->lifeline_fd);
    if (child->ready_fd >= 0)
        close(child->ready_fd);
    child->lifeline_fd = child->ready_fd = -1;
}

/* In the child: run the words, and add the child's ends of the two pipes. */
static void run_engine(const char *program, const struct rp_words *words, int lifeline, int ready)
{
    char lifeline_word[32], ready_word[32], *argv[RP_JOB_WORDS_MAX + 2];
    size_t count = words->count;
    snprintf(lifeline_word, sizeof lifeline_word, "--lifeline=%d", lifeline);
    snprintf(ready_word, sizeof ready_word, "--ready-fd=%d", ready);
    memcpy(argv, words->word, count * sizeof *argv);
    argv[count++] = lifeline_word;
    argv[count++] = ready_word;
    argv[count] = NULL;
    fcntl(lifeline, F_SETFD, 0);
    fcntl(ready, F_SETFD, 0);
    execv(program, argv);
    dprintf(STDERR_FILENO, "%s: cannot run it: %s\n", program, rp_strerror(-errno));
    _exit(127);
}

int rp_child_serve(struct rp_child *engine, const char *program, const struct rp_words *words,
                   void (*begin)(const void *context), const void *context, struct rp_error *error)
{
    int lifeline[2] = {-1, -1}, ready[2] = {-1, -1};
    int code = check_words(words, error);
    if (code < 0)
        return code;
    bool has_pipes = pipe2(lifeline, O_CLOEXEC) == 0 && pipe2(ready, O_CLOEXEC) == 0;
    pid_t pid = has_pipes ? rp_fork() : -1;
    if (pid == 0) {
        begin(context);
        run_engine(program, words, lifeline[0], ready[1]);
    }
    code = forked(engine, "the engine", pid, error);
    close(lifeline[0]);
    close(ready[1]);
    engine->lifeline_fd = lifeline[1];
    engine->ready_fd = ready[0];
    if (code < 0)
        ended(engine, 0);
    return code;
}

/* The process that starts a child. */
struct origin {
    const struct rp_job *job;
    pid_t parent;
};

static void begin_engine(const void *context)
{
    const struct origin *origin = context;
    become_child(origin->job, origin->parent);
}

int rp_job_serve(struct rp_job *job, struct rp_child *engine, const struct rp_words *words,
                 struct rp_error *error)
{
    const struct origin origin = {job, getpid()};
    struct rp_words all = {.failed = words->failed};
    rp_words_add(&all, "%s", job->binary);
    rp_words_add(&all, "serve");
    for (size_t i = 0; i < words->count; i++)
        rp_words_add(&all, "%s", words->word[i]);
    rp_words_add(&all, "--run=%s", RP_JOB_RUN);
    rp_words_add(&all, "--run-dir=%s/run", job->dir);
    rp_words_add(&all, "--private");
    fflush(NULL);
    int code = rp_child_serve(engine, job->binary, &all, begin_engine, &origin, error);
    rp_words_free(&all);
    return code;
}

int rp_job_wait_ready(struct rp_job *job, struct rp_child *engine, struct rp_error *error)
{
    char bytes[16];
    uint64_t until_ns = rp_now_ns() + READY_TIMEOUT_MS * UINT64_C(1000000);
    if (engine->pid == 0) /* it has ended, and its descriptor is closed */
        return rp_job_explain(job, engine, error);
    while (rp_now_ns() < until_ns) {
        struct pollfd end = {.fd = engine->ready_fd, .events = POLLIN};
        int count = poll(&end, 1, 200);
        int code = rp_interrupt_check(RP_JOB_IS_SAFE, error);
        if (code < 0)
            return code;
        if (count <= 0)
            continue;
        if (read(engine->ready_fd, bytes, sizeof bytes) > 0)
            return 0;
        rp_child_signal(engine, 0, true); /* end of file: the engine is ending */
        return rp_job_explain(job, engine, error);
    }
    return rp_fail(error, -RP_E_TIMEOUT, "run it again with -v",
                   "the engine was not ready within %d s", READY_TIMEOUT_MS / 1000);
}

int rp_job_fork(struct rp_job *job, struct rp_child *child, const char *what,
                int (*run)(void *argument), void *argument, struct rp_error *error)
{
    fflush(NULL);
    pid_t parent = getpid(), pid = rp_fork();
    if (pid == 0) {
        become_child(job, parent);
        /* Also the lifelines of engines. glibc has close_range since 2.34. */
        (void)syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0);
        _exit(run(argument));
    }
    return forked(child, what, pid, error);
}

/* ---- ending ---------------------------------------------------------------------------------- */

pid_t rp_child_of(pid_t pid)
{
    pid_t found = 0;
    DIR *directory = pid > 0 ? opendir("/proc") : NULL;
    for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        char path[300];
        int parent = 0;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (!file)
            continue;
        if (fscanf(file, "%*d (%*[^)]) %*c %d", &parent) == 1 && parent == pid)
            found = (pid_t)atoi(entry->d_name);
        fclose(file);
    }
    if (directory)
        closedir(directory);
    return found;
}

bool rp_child_runs(struct rp_child *child)
{
    int status;
    if (child->pid > 0 && waitpid(child->pid, &status, WNOHANG) == child->pid)
        ended(child, status);
    return child->pid > 0;
}

bool rp_child_ended_well(const struct rp_child *child)
{
    return child->pid == 0 && WIFEXITED(child->status) && WEXITSTATUS(child->status) == 0;
}

bool rp_child_was_killed(const struct rp_child *child)
{
    return child->pid == 0 && WIFSIGNALED(child->status) && WTERMSIG(child->status) == SIGKILL;
}

void rp_child_signal(struct rp_child *child, int signal_number, bool wait)
{
    if (child->pid <= 0)
        return;
    if (signal_number)
        kill(child->pid, signal_number);
    int status;
    while (wait && child->pid > 0) {
        pid_t pid = waitpid(child->pid, &status, 0);
        if (pid == child->pid)
            ended(child, status);
        else if (rp_interrupted())
            kill(child->pid, SIGKILL);
    }
}

/* The end of the log, as one line. */
static void read_log_end(const struct rp_job *job, char text[LOG_END_BYTES])
{
    struct stat status;
    ssize_t got = 0;
    if (!job->verbose && fstat(job->log_fd, &status) == 0) {
        off_t from = status.st_size > LOG_END_BYTES - 1 ? status.st_size - LOG_END_BYTES + 1 : 0;
        got = pread(job->log_fd, text, LOG_END_BYTES - 1, from);
    }
    text[got > 0 ? got : 0] = '\0';
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = c[1] ? '|' : '\0';
}

int rp_job_explain(struct rp_job *job, const struct rp_child *child, struct rp_error *error)
{
    char words[LOG_END_BYTES];
    int code = rp_interrupt_check(RP_JOB_IS_SAFE, error);
    if (code < 0) /* after an interrupt, this process ends its children */
        return code;
    read_log_end(job, words);
    bool killed = WIFSIGNALED(child->status);
    return rp_fail(error, -RP_E_GONE,
                   words[0] || job->verbose
                       ? "run it again with -v to see all they say"
                       : "check whether TMPDIR has room, or run it again with -v",
                   "%s ended by itself (%s %d): %s", child->what, killed ? "signal" : "status",
                   killed ? WTERMSIG(child->status) : WEXITSTATUS(child->status),
                   words[0] ? words : "the log is empty");
}
