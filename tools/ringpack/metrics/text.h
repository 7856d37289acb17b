/* SPDX-License-Identifier: Apache-2.0 */
/* text.h — the watched engines as metrics, in one of two forms, and their health as a word. */
#ifndef RP_TOOLS_METRICS_TEXT_H
#define RP_TOOLS_METRICS_TEXT_H

#include <stdio.h>

#include "watch/watch.h"

#define RP_METRICS_CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

enum rp_metrics_form {
    RP_METRICS_OPEN,       /* OpenMetrics 1.0, which ends with `# EOF` */
    RP_METRICS_PROMETHEUS, /* Prometheus' text format 0.0.4, which node_exporter's textfile
                              collector reads: without units, `info` and `stateset` */
};

/** Every family, also one without a sample. Only an engine that answers has figures; of every run
 * the state is shown. The samples are the same in both forms. */
void rp_metrics_text(FILE *out, const struct rp_watch *watch, enum rp_metrics_form form);

/** One line for each reason why something is wrong. Returns whether all is well: an engine answers,
 * none that was there is silent, killed or refused, and no named run lacks its engine. */
bool rp_metrics_health(FILE *out, const struct rp_watch *watch);

#endif
