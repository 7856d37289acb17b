/* SPDX-License-Identifier: Apache-2.0 */
/* text.h — what is watched, as OpenMetrics, as JSON, and as a word on its health. */
#ifndef RP_TOOLS_METRICS_TEXT_H
#define RP_TOOLS_METRICS_TEXT_H

#include <stdio.h>

#include "watch/watch.h"

#define RP_METRICS_CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/** OpenMetrics 1.0: every family, also one without a sample, then `# EOF`. Only an engine that
 * answers has figures; of every run the state is shown. */
void rp_metrics_text(FILE *out, const struct rp_watch *watch);

/** One line for each reason why something is wrong. Returns whether all is well: an engine answers,
 * none that was there is silent, killed or refused, and no named run lacks its engine. */
bool rp_metrics_health(FILE *out, const struct rp_watch *watch);

#endif
