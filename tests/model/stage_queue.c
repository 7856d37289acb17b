/* SPDX-License-Identifier: Apache-2.0 */
/* stage_queue.c — the source of the queue, for the states that it saves while other threads read.
 */
#include "flow_stages.h"
#include "switch.h" /* the switches in queue.c */

#define rp_plan_try_save stage_save
#define rp_plan_row stage_row
#include "flow/queue.c"
