/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_checks.c — a cheap check does the same as the engine: make an io_uring and
 * read with it, make and seal shared memory, collapse its pages, make a socket in the run
 * directory. Versions and limits would not show whether that works. A finding is `ok` unless
 * its check changes it. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/available.h"
#include "base/bits.h"
#include "base/cpus.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/locked_dir.h"
#include "cmd.h"
#include "doctor.h"
#include "io/io.h"
#include "shm/layout.h"
#include "shm/segment.h"
#include "shm/socket.h"

#define CAP_IPC_LOCK_BIT 14 /* linux/capability.h */
#define ENGINE_THREADS 10u  /* the engine's own, at most, without readers and packers */
#define TRIAL_BYTES ((size_t)2 << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static void find(struct rp_doctor_finding *finding, enum rp_doctor_state state, const char *fix,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

static void find(struct rp_doctor_finding *finding, enum rp_doctor_state state, const char *fix,
                 const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->found, sizeof finding->found, format, arguments);
    va_end(arguments);
    finding->state = state;
    snprintf(finding->fix, sizeof finding->fix, "%s", fix ? fix : "");
}

static void find_error(struct rp_doctor_finding *finding, const struct rp_error *error)
{
    find(finding, RP_DOCTOR_FAIL, error->hint, "%s", error->message);
}

static void check_kernel(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    struct utsname name;
    unsigned major = 0, minor = 0;
    (void)needs;
    uname(&name);
    sscanf(name.release, "%u.%u", &major, &minor);
    unsigned version = major * 1000 + minor;
    if (version < 5015)
        find(finding, RP_DOCTOR_FAIL, "run on Linux 5.15 or later", "%s %s on %s: older than 5.15",
             name.sysname, name.release, name.machine);
    else if (version < 6001)
        find(finding, RP_DOCTOR_OK,
             "6.1 and later read a little cheaper and have huge pages without setup", "%s %s on %s",
             name.sysname, name.release, name.machine);
    else
        find(finding, RP_DOCTOR_OK, NULL, "%s %s on %s", name.sysname, name.release, name.machine);
}

static void check_page_size(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    long bytes = sysconf(_SC_PAGESIZE);
    (void)needs;
    if (bytes == RP_PAGE_BYTES)
        find(finding, RP_DOCTOR_OK, NULL, "%ld bytes", bytes);
    else
        find(finding, RP_DOCTOR_FAIL, "boot a kernel with 4 KiB pages",
             "%ld bytes; shared memory is laid out for %u", bytes, RP_PAGE_BYTES);
}

static void check_io_uring(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    const struct rp_io_method *method;
    struct rp_error error;
    char why[512];
    (void)needs;
    if (rp_io_choose(NULL, &method, why, sizeof why, &error) == 0 && method == &rp_io_method_uring)
        find(finding, RP_DOCTOR_OK, NULL, "%s", why);
    else if (rp_io_choose(rp_io_method_uring.name, &method, why, sizeof why, &error) < 0)
        find(finding, RP_DOCTOR_WARN, error.hint,
             "%s; pread threads are used instead, and the rows are the same", error.message);
}

static bool may_lock_without_limit(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    uint64_t effective = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "CapEff: %" SCNx64, &effective) == 1)
            break;
    if (file)
        fclose(file);
    return effective >> CAP_IPC_LOCK_BIT & 1;
}

static void check_locked_memory(const struct rp_doctor_needs *needs,
                                struct rp_doctor_finding *finding)
{
    struct rlimit limit = {0};
    char limit_text[RP_CMD_TEXT_BYTES], wanted_text[RP_CMD_TEXT_BYTES];
    uint64_t wanted = needs->prefetch_bytes * needs->readers; /* counted for each ring */
    getrlimit(RLIMIT_MEMLOCK, &limit);
    rp_cmd_bytes_text(limit.rlim_cur, limit_text);
    rp_cmd_bytes_text(wanted, wanted_text);
    if (limit.rlim_cur == RLIM_INFINITY)
        snprintf(limit_text, sizeof limit_text, "no limit");
    if (may_lock_without_limit())
        find(finding, RP_DOCTOR_OK, NULL, "CAP_IPC_LOCK: the limit (%s) does not count",
             limit_text);
    else if (limit.rlim_cur >= wanted)
        find(finding, RP_DOCTOR_OK, NULL, "%s; %s are wanted", limit_text, wanted_text);
    else
        find(finding, RP_DOCTOR_WARN,
             "raise it: `ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, "
             "`--ulimit memlock=-1` for a container; or lower prefetch_bytes",
             "%s; %s are wanted: reads work, but cost 20 to 70 %% more processor time, or are done "
             "with pread",
             limit_text, wanted_text);
}

static void check_shared_memory(const struct rp_doctor_needs *needs,
                                struct rp_doctor_finding *finding)
{
    struct rp_segment segment = {.fd = -1};
    struct rp_error error;
    (void)needs;
    int code = rp_segment_create(&segment, "ringpack-doctor", TRIAL_BYTES, false, &error);
    if (code == 0)
        code = rp_segment_seal_readers(&segment, &error);
    rp_segment_close(&segment);
    if (code < 0)
        find_error(finding, &error);
    else
        find(finding, RP_DOCTOR_OK, NULL, "memfd: made, touched and sealed");
}

/* The chosen word of a setting such as "always [madvise] never". */
static void read_chosen(const char *path, char word[128])
{
    char line[128];
    size_t bytes = rp_file_head(path, line, sizeof line);
    char *start = strchr(line, '[');
    start = start ? start + 1 : line;
    start[strcspn(start, "]\n")] = '\0';
    snprintf(word, 128, "%s", bytes ? start : "?");
}

static void check_huge_pages(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    struct rp_segment segment = {.fd = -1};
    struct rp_error error;
    char setting[128];
    (void)needs;
    read_chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", setting);
    if (rp_segment_create(&segment, "ringpack-doctor", TRIAL_BYTES, true, &error) < 0) {
        find_error(finding, &error);
        return;
    }
    int reason = 0;
    if (!segment.huge && madvise(segment.data, segment.bytes, MADV_COLLAPSE) != 0)
        reason = errno;
    rp_segment_close(&segment);
    if (reason == 0)
        find(finding, RP_DOCTOR_OK, NULL, "collapsed on demand (shmem_enabled is `%s`)", setting);
    else
        find(finding, RP_DOCTOR_WARN,
             reason == EINVAL ? "Linux 6.1 and later collapse pages on demand"
                              : "free or compact memory: `echo 1 > /proc/sys/vm/compact_memory`",
             "pages do not collapse: %s (shmem_enabled is `%s`); cold reads may run at half the "
             "bandwidth",
             strerror(reason), setting);
}

static void check_memory(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    struct rp_available available = rp_memory_available();
    uint64_t wanted = needs->memory_bytes ? needs->memory_bytes : needs->prefetch_bytes;
    char available_text[RP_CMD_TEXT_BYTES], wanted_text[RP_CMD_TEXT_BYTES];
    const char *scope = needs->memory_bytes
                            ? "by an engine"
                            : "only for the prefetch ring (with a corpus: by an engine)";
    rp_cmd_bytes_text(available.bytes, available_text);
    rp_cmd_bytes_text(wanted, wanted_text);
    if (available.bytes < wanted)
        find(finding, RP_DOCTOR_FAIL,
             "lower prefetch_bytes or prefetch_factor, or raise the memory limit",
             "%s available (%s), %s wanted %s", available_text, available.limit, wanted_text,
             scope);
    else
        find(finding, RP_DOCTOR_OK, NULL, "%s available (%s), %s wanted %s", available_text,
             available.limit, wanted_text, scope);
}

static void check_dev_shm(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    struct statvfs info;
    char text[RP_CMD_TEXT_BYTES];
    (void)needs;
    if (statvfs("/dev/shm", &info) < 0)
        find(finding, RP_DOCTOR_OK, NULL, "not there, and not needed");
    else
        find(finding, RP_DOCTOR_OK, NULL, "%s; not used by ringpack, so its size does not matter",
             rp_cmd_bytes_text((uint64_t)info.f_blocks * info.f_frsize, text));
}

static void check_open_files(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    struct rlimit limit = {0};
    static const char fix[] =
        "raise it: `ulimit -n 65536`, LimitNOFILE in a systemd unit, `--ulimit nofile` "
        "for a container";
    getrlimit(RLIMIT_NOFILE, &limit);
    uint64_t have = limit.rlim_cur;
    if (have < needs->files_least)
        find(finding, RP_DOCTOR_FAIL, fix, "%" PRIu64 "; %" PRIu64 " are wanted", have,
             needs->files_least);
    else if (have < needs->files)
        find(finding, RP_DOCTOR_WARN, fix,
             "%" PRIu64 "; with %" PRIu64 " all token files could stay open; so they are opened in "
             "turn, and are read where they could be mapped",
             have, needs->files);
    else
        find(finding, RP_DOCTOR_OK, NULL, "%" PRIu64 "; %" PRIu64 " are wanted", have,
             needs->files);
}

static void check_run_directory(const struct rp_doctor_needs *needs,
                                struct rp_doctor_finding *finding)
{
    struct rp_listener listener;
    struct rp_error error;
    char name[32], path[256], link[64];
    snprintf(name, sizeof name, "doctor-%d", (int)getpid());
    if (rp_listener_open(&listener, needs->run_dir, name, &error) < 0) {
        find_error(finding, &error);
        return;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", listener.directory_fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    rp_listener_close(&listener);
    find(finding, RP_DOCTOR_OK, NULL, "%s: a socket was made in it; no other user may write there",
         path);
}

/* The directory itself, or its nearest ancestor that exists. The caller frees it; NULL when out of
 * memory. */
static char *nearest_directory(const char *path)
{
    struct stat info;
    char *place = strdup(path);
    while (place && stat(place, &info) < 0 && errno == ENOENT && strcmp(place, ".") != 0) {
        char *above = rp_path_directory(place);
        free(place);
        place = above;
    }
    return place;
}

/* As a start and the first save in a directory of checkpoints: lock, write, name. */
static int try_new_directory(char *name, struct rp_error *error)
{
    struct rp_locked_dir locked;
    if (!mkdtemp(name))
        return rp_file_fail(error, name, "make a directory");
    int code = rp_locked_dir_open(&locked, name, error);
    if (code == 0)
        rp_locked_dir_close(&locked);
    rp_locked_dir_remove(name);
    return code;
}

/* In a directory next to the run directories of engines, which may be running. */
static int try_directory(const char *key, const char *path, struct rp_error *error)
{
    struct stat info;
    char *place = nearest_directory(path);
    char *name = place ? rp_asprintf("%s/.ringpack-doctor-XXXXXX", place) : NULL;
    int code = name ? 0 : rp_fail(error, -ENOMEM, NULL, "no memory for the name of a file");
    if (code == 0 && stat(place, &info) == 0 && !S_ISDIR(info.st_mode))
        code = rp_fail(error, -ENOTDIR, "give the path of a directory",
                       "%s: expected a directory, found something else", place);
    if (code == 0)
        code = try_new_directory(name, error);
    free(place);
    free(name);
    return code < 0 ? rp_fail_context(error, code, "%s %s cannot be written", key, path) : 0;
}

/* Whether a start finds the checkpoint that it needs, as the engine looks for it. */
static int find_checkpoint(const struct rp_doctor_needs *needs, struct rp_error *error)
{
    struct rp_checkpoint *newest = NULL;
    const char *directory = needs->checkpoint_dir, *mirror = needs->checkpoint_mirror_dir;
    if (needs->resume == RP_RESUME_FRESH)
        return 0;
    int code = rp_checkpoint_newest(&newest, directory, false, error);
    if (code == 0 && mirror)
        code = rp_checkpoint_newest(&newest, mirror, false, error);
    rp_checkpoint_close(newest);
    if (code == 0 && needs->resume == RP_RESUME_REQUIRED)
        code = rp_fail(error, -RP_E_EMPTY, "mount or restore it, or start with `--resume auto`",
                       "resume: required, and %s has no checkpoint", directory);
    return code < 0 ? code : 0;
}

static void check_checkpoints(const struct rp_doctor_needs *needs,
                              struct rp_doctor_finding *finding)
{
    struct rp_error error;
    const char *const directories[][2] = {{"checkpoint_dir", needs->checkpoint_dir},
                                          {"checkpoint_mirror_dir", needs->checkpoint_mirror_dir}};
    find(finding, RP_DOCTOR_OK, NULL, "none are written: no checkpoint_dir is given");
    for (size_t i = 0; i < RP_ARRAY_COUNT(directories); i++) {
        const char *path = directories[i][1];
        if (!path || !strcmp(path, "none"))
            continue;
        if (try_directory(directories[i][0], path, &error) < 0) {
            find_error(finding, &error);
            return;
        }
        find(finding, RP_DOCTOR_OK, NULL, "%s: a checkpoint can be written", needs->checkpoint_dir);
        if (i == 0 && find_checkpoint(needs, &error) < 0) {
            find_error(finding, &error);
            return;
        }
    }
}

static void check_processors(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t usable = rp_cpus_allowed(), quota = rp_cpus_quota("");
    uint32_t threads = needs->readers + needs->packers + 1;
    const char *why = quota == usable ? " (the quota of its cgroup)" : "";
    find(finding, RP_DOCTOR_OK, NULL,
         "%u usable of %ld%s; the engine takes %u threads (%u pack), mostly asleep", usable, online,
         why, threads, needs->packers);
    if (usable < 2)
        find(finding, RP_DOCTOR_WARN,
             "give the process a second one (taskset, --cpuset-cpus, --cpus, CPUQuota=)",
             "%u usable of %ld%s: trainer and engine take turns", usable, online, why);
}

/* Threads that wait until all of them run. */
struct crowd {
    pthread_mutex_t is_full;
};

static void *wait_for_crowd(void *argument)
{
    struct crowd *crowd = argument;
    pthread_mutex_lock(&crowd->is_full);
    pthread_mutex_unlock(&crowd->is_full);
    return NULL;
}

/* As many as an engine has at once: readers with a helper each, packers, and its own. */
static void check_threads(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    struct crowd crowd = {PTHREAD_MUTEX_INITIALIZER};
    uint32_t wanted = 2 * needs->readers + needs->packers + ENGINE_THREADS, count = 0;
    pthread_t *threads = rp_calloc(wanted, sizeof *threads);
    struct rp_thread_tries tries = {0};
    int failed = threads ? 0 : ENOMEM;
    pthread_mutex_lock(&crowd.is_full);
    while (count < wanted && threads) {
        failed = rp_thread_try(&threads[count], wait_for_crowd, &crowd);
        count += failed == 0;
        if (failed && !rp_thread_again(&tries, failed))
            break;
    }
    pthread_mutex_unlock(&crowd.is_full);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    if (count == wanted)
        find(finding, RP_DOCTOR_OK, NULL, "%u were started at once", wanted);
    else
        find(finding, RP_DOCTOR_FAIL,
             "raise the limit of processes, which counts threads: `ulimit -u`, TasksMax= in a "
             "systemd unit, `--pids-limit` for a container",
             "%u threads at once: %u expected, %u could be started: %s", wanted, wanted, count,
             rp_strerror(-failed));
}

#ifdef RP_JEMALLOC
int mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);
#endif

static void check_allocator(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    (void)needs;
    find(finding, RP_DOCTOR_WARN, "build without sanitizers",
         "not jemalloc: only control work allocates, so little is lost");
#ifdef RP_JEMALLOC
    const char *version = "?";
    size_t bytes = sizeof version;
    if (mallctl("version", &version, &bytes, NULL, 0) == 0)
        find(finding, RP_DOCTOR_OK, NULL, "jemalloc %s", version);
#endif
}

static void check_corpus(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    if (needs->corpus_code < 0)
        find_error(finding, &needs->corpus_error);
    else if (needs->packing[0])
        find(finding, RP_DOCTOR_WARN, "set it in the config, if the stream is a new one", "%s",
             needs->packing);
    else
        find(finding, RP_DOCTOR_OK, NULL, "rows have room for its documents");
}

static void check_borders(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    if (needs->eos[0])
        find(finding, RP_DOCTOR_WARN,
             "compare `eos` with the tokenizer that made the ids, and index the files again", "%s",
             needs->eos);
    else
        find(finding, RP_DOCTOR_OK, NULL, "no EOS is doubtful");
}

static void check_vocabulary(const struct rp_doctor_needs *needs, struct rp_doctor_finding *finding)
{
    if (!needs->has_corpus || needs->token_max == 0)
        find(finding, RP_DOCTOR_OK, NULL, "the largest token id is not known: `ringpack index`");
    else if (needs->token_max >= needs->token_limit)
        find(finding, RP_DOCTOR_FAIL,
             "compare vocab_size, token_dtype and the dtype of the source with the tokenizer",
             "source `%s` has token id %" PRIu64 ", and ids must be below %" PRIu64,
             needs->token_source, needs->token_max, needs->token_limit);
    else
        find(finding, RP_DOCTOR_OK, NULL,
             "the largest token id that is known is %" PRIu64 ", below %" PRIu64, needs->token_max,
             needs->token_limit);
}

static void check_verification(const struct rp_doctor_needs *needs,
                               struct rp_doctor_finding *finding)
{
    if (!needs->has_corpus)
        find(finding, RP_DOCTOR_OK, NULL,
             "no corpus to check: give a config with -c, or --sources");
    else if (needs->unverified[0])
        find(finding, RP_DOCTOR_WARN,
             "`ringpack index` on these shards (and verify_blocks not `off`): a changed token is "
             "then never delivered",
             "nothing verifies %.1f %% of the tokens, %.1f %% of the bytes that are read: %s",
             100 * needs->unverified_share.tokens, 100 * needs->unverified_share.bytes,
             needs->unverified);
    else
        find(finding, RP_DOCTOR_OK, NULL, "every block that is read is compared with its hash");
}

const struct rp_doctor_check rp_doctor_checks[] = {
    {"kernel", check_kernel},         {"page size", check_page_size},
    {"io_uring", check_io_uring},     {"locked memory", check_locked_memory},
    {"huge pages", check_huge_pages}, {"shared memory", check_shared_memory},
    {"memory", check_memory},         {"/dev/shm", check_dev_shm},
    {"open files", check_open_files}, {"run directory", check_run_directory},
    {"processors", check_processors}, {"threads", check_threads},
    {"allocator", check_allocator},   {"checkpoints", check_checkpoints},
    {"corpus", check_corpus},         {"documents", check_borders},
    {"vocabulary", check_vocabulary}, {"verification", check_verification},
};
const size_t rp_doctor_check_count = RP_ARRAY_COUNT(rp_doctor_checks);
