/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/watch.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "client/question.h"
#include "cmd.h"
#include "ringpack/client.h"
#include "shm/peer.h"
#include "shm/run_dir.h"

#define SOCKET_SUFFIX ".sock"
#define DISCOVERY_NS UINT64_C(100000000) /* for an engine that accepts no connection */

static const struct {
    const char *word, *meaning;
} states[] = {
#define STATE_TEXT(name, word, meaning) {word, meaning},
    RP_WATCH_STATES(STATE_TEXT)
#undef STATE_TEXT
};

const char *rp_watch_state_word(enum rp_watch_state state)
{
    RP_ASSERT(state < RP_WATCH_STATE_COUNT);
    return states[state].word;
}

static void become(struct rp_watched *run, enum rp_watch_state state, const char *why)
{
    run->state = state;
    snprintf(run->why, sizeof run->why, "%s", why ? why : states[state].meaning);
}

/* ---- entries --------------------------------------------------------------------------------- */

static void forget(struct rp_watched *run)
{
    if (run->fd >= 0)
        close(run->fd);
    json_decref(run->stat);
}

bool rp_watch_lives(const struct rp_watched *run)
{
    return run->fd >= 0 || run->state == RP_WATCH_RUNNING || run->state == RP_WATCH_SILENT;
}

/* A new entry; if there is no room, it replaces an engine that has ended. */
static struct rp_watched *make_room(struct rp_watch *watch)
{
    if (watch->count < RP_WATCHED_MAX)
        return &watch->runs[watch->count++];
    for (size_t i = 0; i < watch->count; i++)
        if (!rp_watch_lives(&watch->runs[i])) {
            forget(&watch->runs[i]);
            return &watch->runs[i];
        }
    watch->is_full = true;
    return NULL;
}

static struct rp_watched new_run(const char *name)
{
    struct rp_watched run = {.fd = -1};
    snprintf(run.run, sizeof run.run, "%s", name);
    become(&run, RP_WATCH_STOPPED, NULL);
    return run;
}

int rp_watch_open(struct rp_watch *watch, const char *run_dir, const char *const *names,
                  size_t count, struct rp_error *error)
{
    *watch = (struct rp_watch){.run_dir = run_dir, .finds = count == 0};
    if (count > RP_WATCHED_MAX)
        return rp_fail(error, -RP_E_USAGE, NULL, "at most %u runs are watched, %zu were named",
                       RP_WATCHED_MAX, count);
    for (size_t i = 0; i < count; i++) {
        int code = rp_run_name_check(names[i], error);
        if (code < 0)
            return code;
        watch->runs[watch->count] = new_run(names[i]);
        watch->runs[watch->count++].is_named = true;
    }
    return 0;
}

void rp_watch_close(struct rp_watch *watch)
{
    for (size_t i = 0; i < watch->count; i++)
        forget(&watch->runs[i]);
    watch->count = 0;
}

/* ---- questions and answers ------------------------------------------------------------------- */

/* Whether NAME.sock is there: a clean end removes it, a kill leaves it. */
static bool has_socket(const struct rp_watch *watch, const char *run)
{
    struct rp_run_dirs dirs;
    bool found = false;
    if (rp_run_dirs_list(&dirs, watch->run_dir, NULL) < 0)
        return false;
    for (unsigned i = 0; i < dirs.count && !found; i++) {
        int fd = rp_run_dir_open(dirs.paths[i], NULL);
        if (fd < 0)
            continue;
        struct sockaddr_un address = rp_run_socket_address(fd, run);
        struct stat status;
        found = lstat(address.sun_path, &status) == 0 && S_ISSOCK(status.st_mode);
        close(fd);
    }
    rp_run_dirs_free(&dirs);
    return found;
}

static void stop_asking(struct rp_watched *run)
{
    if (run->fd >= 0)
        close(run->fd);
    run->fd = -1;
}

static void take_failure(const struct rp_watch *watch, struct rp_watched *run, int code,
                         const struct rp_error *error)
{
    stop_asking(run);
    if (code == -RP_E_GONE && has_socket(watch, run->run))
        become(run, RP_WATCH_KILLED, NULL);
    else if (code == -RP_E_GONE && json_is_true(json_object_get(run->stat, "ended")))
        become(run, RP_WATCH_FINISHED, NULL);
    else if (code == -RP_E_GONE)
        become(run, RP_WATCH_STOPPED, NULL);
    else
        become(run, RP_WATCH_REFUSED, error->message[0] ? error->message : rp_strerror(code));
}

static void begin_question(const struct rp_watch *watch, struct rp_watched *run,
                           uint64_t patience_ns)
{
    struct rp_error error = {0};
    if (run->fd >= 0)
        return; /* it has not answered yet */
    stop_asking(run);
    run->fd = rp_question_stat(watch->run_dir, run->run, patience_ns, &error);
    if (run->fd < 0) {
        take_failure(watch, run, run->fd, &error);
        return;
    }
    run->pid = rp_peer_of(run->fd).pid;
}

static void take_answer(struct rp_watched *run, char *text, uint64_t now_ns)
{
    json_t *stat = json_loads(text, 0, NULL);
    stop_asking(run);
    if (json_is_object(stat)) {
        json_decref(run->stat);
        run->stat = stat;
        run->answered_ns = now_ns;
        become(run, RP_WATCH_RUNNING, NULL);
        return;
    }
    json_decref(stat);
    become(run, RP_WATCH_REFUSED, "the engine's answer is no JSON object");
}

/* Wait for the answer until the deadline, or not at all if the engine is known to be silent. */
static void end_question(const struct rp_watch *watch, struct rp_watched *run, uint64_t deadline_ns)
{
    struct rp_error error = {0};
    uint64_t now = rp_now_ns();
    bool waits = run->state != RP_WATCH_SILENT && now < deadline_ns;
    char *text;
    if (run->fd < 0)
        return;
    int wait_ms = waits ? (int)rp_div_up(deadline_ns - now, 1000000u) : 0;
    int code = rp_question_answer(run->fd, wait_ms, &text, &error);
    if (code == 0)
        take_answer(run, text, rp_now_ns());
    else if (code == -RP_E_TIMEOUT)
        become(run, RP_WATCH_SILENT, NULL);
    else
        take_failure(watch, run, code, &error);
    if (code == 0)
        rp_text_free(text);
}

/* ---- which runs there are -------------------------------------------------------------------- */

/* Most of the names are often left by engines that were killed long ago. */
static void discover(struct rp_watch *watch, const char *name)
{
    for (size_t i = 0; i < watch->count; i++)
        if (!strcmp(watch->runs[i].run, name))
            return;
    struct rp_watched run = new_run(name), *place;
    begin_question(watch, &run, DISCOVERY_NS);
    if (!rp_watch_lives(&run) && run.state != RP_WATCH_REFUSED && !watch->finds_leftovers)
        return;
    place = make_room(watch);
    if (place)
        *place = run;
    else
        forget(&run);
}

/* Names of the sockets in a directory. Any other name is no socket of ours. */
static void find_in(struct rp_watch *watch, DIR *directory)
{
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        char name[RP_RUN_NAME_BYTES];
        size_t length = strlen(entry->d_name);
        if (!rp_text_has_suffix(entry->d_name, SOCKET_SUFFIX) ||
            length - strlen(SOCKET_SUFFIX) >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(length - strlen(SOCKET_SUFFIX)), entry->d_name);
        if (rp_run_name_check(name, NULL) == 0)
            discover(watch, name);
    }
}

/* A directory that is not there has no engine. An engine skips a default one that it cannot use. */
static int find_runs(struct rp_watch *watch, struct rp_error *error)
{
    struct rp_run_dirs dirs;
    int code = rp_run_dirs_list(&dirs, watch->run_dir, error);
    if (code < 0)
        return code;
    for (unsigned i = 0; i < dirs.count && code >= 0; i++) {
        int fd = rp_run_dir_open(dirs.paths[i], error);
        DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
        if (directory) {
            find_in(watch, directory);
            closedir(directory);
        } else if (fd >= 0) {
            code = rp_fail(error, -errno, NULL, "run directory %s: %s", dirs.paths[i],
                           strerror(errno));
            close(fd);
        } else if (fd != -ENOENT && !dirs.is_default) {
            code = fd;
        }
    }
    rp_run_dirs_free(&dirs);
    return code < 0 ? code : 0;
}

int rp_watch_poll(struct rp_watch *watch, uint64_t patience_ns, struct rp_error *error)
{
    uint64_t deadline = rp_now_ns() + patience_ns;
    int code = watch->finds ? find_runs(watch, error) : 0;
    for (size_t i = 0; i < watch->count; i++) {
        uint64_t now = rp_now_ns();
        begin_question(watch, &watch->runs[i], now < deadline ? deadline - now : 0);
    }
    for (size_t i = 0; i < watch->count; i++)
        end_question(watch, &watch->runs[i], deadline);
    return code;
}

/* ---- one engine ------------------------------------------------------------------------------ */

double rp_watch_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : -1;
}

const char *rp_watch_most_cause(const json_t *rank)
{
    json_t *causes = json_object_get(rank, "cause_seconds");
    const char *most = NULL;
    double seconds = 0;
    for (void *i = json_object_iter(causes); i; i = json_object_iter_next(causes, i)) {
        if (json_number_value(json_object_iter_value(i)) <= seconds)
            continue;
        seconds = json_number_value(json_object_iter_value(i));
        most = json_object_iter_key(i);
    }
    return most;
}

size_t rp_watch_attached(const json_t *stat)
{
    const json_t *ranks = json_object_get(stat, "ranks");
    size_t attached = 0;
    for (size_t i = 0; i < json_array_size(ranks); i++)
        attached += json_is_true(json_object_get(json_array_get(ranks, i), "attached"));
    return attached;
}

/* The 22nd word of /proc/PID/stat is the start in ticks since the boot; the second, in brackets,
 * may hold anything. */
double rp_watch_uptime(int pid)
{
    char path[64], text[1024];
    struct timespec now;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const char *at = pid > 0 && rp_file_head(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    for (int word = 2; at && word < 22; word++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    unsigned long long ticks;
    if (!at || sscanf(at, "%llu", &ticks) != 1 || clock_gettime(CLOCK_BOOTTIME, &now) != 0)
        return -1;
    double start = (double)ticks / (double)sysconf(_SC_CLK_TCK);
    double uptime = (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - start;
    return uptime > 0 ? uptime : 0;
}

json_t *rp_watch_json(const struct rp_watched *run, uint64_t now_ns)
{
    bool lives = rp_watch_lives(run);
    double uptime = lives ? rp_watch_uptime(run->pid) : -1;
    json_t *object = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "run", run->run, "state",
                               rp_watch_state_word(run->state), "why", rp_cmd_json_text(run->why),
                               "pid", run->pid && lives ? json_integer(run->pid) : json_null(),
                               "uptime_seconds", uptime >= 0 ? json_real(uptime) : json_null(),
                               "stat", run->stat ? json_incref(run->stat) : json_null());
    if (run->stat && object)
        json_object_set_new(object, "age_seconds",
                            json_real((double)(now_ns - run->answered_ns) * 1e-9));
    return object;
}
