/* SPDX-License-Identifier: Apache-2.0 */
/* alert.h — when an alert is raised, when its command is run, and when it is cleared: decided from
 * only the findings of a check and the time.
 *
 *   kind           bad                                      good                 calm for
 *   -------------  ---------------------------------------  -------------------  ---------
 *   starved        a trainer waits for starved_ns           at most half of it   60 s
 *   skew           for 1 s ranks are skew_rows apart        at most half of it   60 s
 *   disk_free      less than free_bytes are free            a tenth more is      60 s
 *   save_failed    the last save failed, or one since       neither              0
 *   copy_failed    the last copy failed, or one since       neither              0
 *   engine_failed  the engine stops with an error, or is    it does not          0
 *                  killed
 *   engine_silent  for RP_ALERT_SILENCE_NS it answers no    it answers           0
 *                  question
 *
 * A value that is neither bad nor good, or not known, changes no state. Only the last two kinds and
 * free_bytes are known while an engine does not answer. An alert ends at a good
 * check if no check was bad for the time in the last column. So a value that moves about
 * its limit, or is bad now and then, is one alert:
 *
 *   state   event                            state after   action
 *   ------  -------------------------------  ------------  ------------------------------
 *   QUIET   bad                              RAISED        a line in the log; the command
 *   QUIET   bad, RP_ALERT_PERIOD_NS have     OWED          a line in the log
 *           not passed since the command
 *   OWED    they have passed                 RAISED        the command
 *   others  it is over                       QUIET         a line in the log */
#ifndef RP_TOOLS_ALERT_H
#define RP_TOOLS_ALERT_H

#include <stdbool.h>
#include <stdint.h>

enum rp_alert_kind {
    RP_ALERT_STARVED,
    RP_ALERT_SKEW,
    RP_ALERT_DISK_FREE,
    RP_ALERT_SAVE_FAILED,
    RP_ALERT_COPY_FAILED,
    RP_ALERT_ENGINE_FAILED,
    RP_ALERT_ENGINE_SILENT,
    RP_ALERT_KINDS
};

/* The least time between two commands of one kind. */
#define RP_ALERT_PERIOD_NS 300000000000u
#define RP_ALERT_SILENCE_NS 30000000000u

/* A kind without a limit (0) is never bad. */
struct rp_alert_limits {
    uint64_t starved_ns, skew_rows, free_bytes;
};

#define RP_FREE_UNKNOWN UINT64_MAX

/* The findings of a check. */
struct rp_alert_view {
    bool answers;
    bool is_running; /* else no trainer is served, and waits and skew are not known */
    uint64_t starved_ns, skew_rows;
    uint64_t free_bytes; /* RP_FREE_UNKNOWN: no disk has answered recently */
    bool save_failed, copy_failed, engine_failed;
    uint64_t silent_ns; /* since when it has not answered; 0 = it answers */
};

enum rp_alert_sign { RP_SIGN_UNSURE, RP_SIGN_GOOD, RP_SIGN_BAD };

enum rp_alert_state { RP_ALERT_QUIET, RP_ALERT_OWED, RP_ALERT_RAISED };

/* Zero at the start. */
struct rp_alert {
    enum rp_alert_state state;
    uint64_t bad_since_ns; /* the first of the bad checks up to now; 0 = the newest was not bad */
    uint64_t bad_ns;       /* the newest bad check; 0 = there was none */
    uint64_t raised_ns;    /* the newest alert; 0 = there was none */
    uint64_t run_ns;       /* the start of the newest command; 0 = there was none */
    uint64_t times, commands;
};

enum rp_alert_step {
    RP_ALERT_NOTHING,
    RP_ALERT_RAISE,         /* log it */
    RP_ALERT_RAISE_AND_RUN, /* log it, and run the command */
    RP_ALERT_RUN,           /* run the command that was owed */
    RP_ALERT_CLEAR          /* log that it is over */
};

/** "starved" and the like. */
const char *rp_alert_name(enum rp_alert_kind kind);
/** The table above. */
enum rp_alert_sign rp_alert_sign(enum rp_alert_kind kind, const struct rp_alert_limits *limits,
                                 const struct rp_alert_view *view);
/** The state after a check at `now_ns`, which is not 0 and never goes back, and the action. */
enum rp_alert_step rp_alert_evaluate(struct rp_alert *alert, enum rp_alert_kind kind,
                                     enum rp_alert_sign sign, uint64_t now_ns);
/** Until the next check: a tenth of a second while a value is about to become an alert, else a
 * second, or half of starved_ns if that is less. So a wait is seen before it reaches the limit. */
uint64_t rp_alert_pause_ns(const struct rp_alert_limits *limits, const struct rp_alert_view *view,
                           const struct rp_alert alerts[RP_ALERT_KINDS]);

#endif
