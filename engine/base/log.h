/* SPDX-License-Identifier: Apache-2.0 */
/* log.h — one line on stderr for each event. Threads that move data do not log.
 *
 * An event that somebody watches for has a name, which stays while its words may change. */
#ifndef RP_BASE_LOG_H
#define RP_BASE_LOG_H

enum rp_log_level { RP_LOG_ERROR, RP_LOG_WARNING, RP_LOG_INFO };

enum rp_log_format {
    RP_LOG_TEXT,    /* 2026-01-31T12:00:00.000Z ringpack: warning: message */
    RP_LOG_JSON,    /* {"time": …, "level": …, "event": …, "pid": …, "message": …} */
    RP_LOG_PLAIN,   /* ringpack: warning: message. At start, and for readers that add the time */
    RP_LOG_JOURNAL, /* <4>message: of sd-daemon(3). The journal adds the time */
};

/* Name, level, meaning. tools/python/docs/log.md has the same lines. */
#define RP_LOG_EVENTS(X)                                                                           \
    X(serving, INFO, "trainers can attach; the ranks and the row are named")                       \
    X(resumed, INFO, "the start took this checkpoint, at this row")                                \
    X(resumed_from_copy, WARNING, "the checkpoint directory was lost; the start took a copy")      \
    X(started_at_row_0, WARNING, "there was no checkpoint; is the directory mounted?")             \
    X(contract_changed, INFO, "fields that may change are others than in the checkpoint")          \
    X(attached, INFO, "a trainer of this rank has attached, at this row")                          \
    X(detached, INFO, "a trainer of this rank has left, or died, at this row")                     \
    X(refused, WARNING, "an attach was refused, with a reason; repeats: every 10 seconds")         \
    X(behind, INFO, "a rank is far behind the others; a flow of its own reads its rows")           \
    X(caught_up, INFO, "that rank is as far as the others again")                                  \
    X(saved, INFO, "a checkpoint is on the disk; it is read back next")                            \
    X(saved_without_contents, WARNING,                                                             \
      "the same, and prefetched rows are read again; it says why")                                 \
    X(save_not_needed, INFO, "the newest checkpoint is of this very position")                     \
    X(save_failed, ERROR, "no checkpoint was saved; earlier ones stay, the stream continues")      \
    X(save_not_trusted, ERROR, "the disk does not return the acknowledged bytes; older ones stay") \
    X(checkpoint_damaged, ERROR,                                                                   \
      "a kept checkpoint or copy has decayed; it is named, and stays until others verify")         \
    X(copy_failed, ERROR, "a checkpoint has no copy in the mirror")                                \
    X(alert, WARNING, "an alert is raised; its kind is named, and `alert_command` is run")         \
    X(alert_cleared, INFO, "the incident is over")                                                 \
    X(alert_command_failed, WARNING, "the command of an alert did not run, or was killed")         \
    X(watcher_replaced, WARNING,                                                                   \
      "the process that raises alerts died; it is started again, and knows the raised alerts")     \
    X(watcher_lost, ERROR,                                                                         \
      "it died repeatedly or could not start: no alerts before the next engine")                   \
    X(packer_replaced, WARNING, "a packer process died; its work is repeated")                     \
    X(failed, ERROR, "the engine stops for this reason; batches before it are delivered")          \
    X(stage_ended, INFO, "every rank has had all batches of a stage; the engine ends")             \
    X(stream_ended, INFO, "every rank has had all batches; the engine ends")                       \
    X(stopping, INFO, "a signal, or the end of the parent, ends the engine after a checkpoint")

enum rp_log_event {
#define RP_LOG_EVENT(name, level, meaning) RP_EVENT_##name,
    RP_LOG_EVENTS(RP_LOG_EVENT)
#undef RP_LOG_EVENT
        RP_EVENT_COUNT
};

void rp_log_set_level(enum rp_log_level level); /* INFO at start */

/** RP_LOG_TEXT becomes RP_LOG_JOURNAL where stderr is the journal of systemd. Before there are
 * other threads. */
void rp_log_set_format(enum rp_log_format format);

/** A line without a name. */
void rp_log(enum rp_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** A line with a name, at the level of the table. */
void rp_log_event(enum rp_log_event event, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
