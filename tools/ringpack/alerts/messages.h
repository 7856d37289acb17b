/* SPDX-License-Identifier: Apache-2.0 */
/* messages.h — the messages between the process of an engine (keeper.h) and its watcher
 * (watcher.h), both of one program file, on a socket of datagrams:
 *
 *   to the watcher    struct rp_alert_task, first; at the end of the engine the keys of
 *                     `ringpack stat` about its phase and its saves, as JSON
 *   from the watcher  struct rp_alert_known, whenever it has changed
 *
 * Each side closes its end only by ending. */
#ifndef RP_TOOLS_ALERT_MESSAGES_H
#define RP_TOOLS_ALERT_MESSAGES_H

#include <limits.h>
#include <sys/types.h>

#include "alerts/alert.h"
#include "base/fail.h"
#include "base/log.h"
#include "shm/layout.h"

#define RP_ALERT_DISKS_MAX 3u
#define RP_ALERT_COMMAND_BYTES 16384u

/* The text of an alert that was raised. */
struct rp_alert_report {
    char message[sizeof(((struct rp_error *)0)->message)];
    uint64_t value, limit;
    char cause[16]; /* for starved: as in `ringpack stat`; else "" */
};

/* A directory into which the engine writes. */
struct rp_alert_disk {
    char directory[PATH_MAX];
    uint64_t at_ns; /* the newest answer's; 0 = there was none */
    uint64_t free_bytes;
    bool lacks_inodes;
};

/* The knowledge of a watcher. The next watcher of the engine gets it, and so raises no alert again.
 * Moments are of CLOCK_MONOTONIC. */
struct rp_alert_known {
    struct rp_alert alerts[RP_ALERT_KINDS];
    struct rp_alert_report reports[RP_ALERT_KINDS];
    uint64_t command_failures[RP_ALERT_KINDS];
    pid_t pids[RP_ALERT_KINDS];            /* running commands and their process groups; 0 = none */
    uint64_t save_failures, copy_failures; /* the engine's, at the last check */
    struct rp_alert_disk disks[RP_ALERT_DISKS_MAX];
    uint32_t disk_count;
};

struct rp_alert_task {
    struct rp_alert_known known;
    struct rp_alert_limits limits;
    pid_t engine;
    enum rp_log_format log_format;
    char run[RP_RUN_NAME_BYTES];
    char run_dir[PATH_MAX]; /* "" = the default ones */
    char program[PATH_MAX]; /* "" = alerts are logged, and no command is run */
    char command[RP_ALERT_COMMAND_BYTES];
};

#endif
