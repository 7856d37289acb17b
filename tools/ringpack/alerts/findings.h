/* SPDX-License-Identifier: Apache-2.0 */
/* findings.h — the findings of alerts in an answer of `ringpack stat` and in free space, and the
 * text of each alert. Pure: no call of the system. */
#ifndef RP_TOOLS_ALERT_FINDINGS_H
#define RP_TOOLS_ALERT_FINDINGS_H

#include <jansson.h>

#include "alerts/messages.h"

/* The result of a check. Ranks are objects of the answer; NULL = none. */
struct rp_alert_findings {
    struct rp_alert_view view;
    const json_t *stat; /* NULL = the engine has not answered */
    const json_t *starved, *first, *last;
    const struct rp_alert_disk *disk; /* with the least room */
};

/** `stat` NULL: no answer. Counts failures in task->known. Failures count only if the task has a
 * program: the log names each anyway. A failure of the engine has no end. */
struct rp_alert_findings rp_alert_find(const json_t *stat, struct rp_alert_task *task,
                                       uint64_t now_ns);
/** The text of an alert that is raised for these findings. */
struct rp_alert_report rp_alert_report(const struct rp_alert_findings *found,
                                       enum rp_alert_kind kind, const struct rp_alert_task *task);
/** Add `alerts` and `disks` to an answer of `ringpack stat`: without a task, empty ones. */
void rp_alert_add_to_stat(json_t *stat, const struct rp_alert_task *task, uint64_t now_ns);

#endif
