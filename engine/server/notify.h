/* SPDX-License-Identifier: Apache-2.0 */
/* notify.h — notifies the service manager that the engine is ready, by the protocol of
 * sd_notify(3): a datagram to the socket that NOTIFY_SOCKET names, if it is set. Waits up to 5
 * seconds for room in the manager's queue; a failure is a warning in the log, because an engine
 * needs no manager. */
#ifndef RP_SERVER_NOTIFY_H
#define RP_SERVER_NOTIFY_H

void rp_notify_ready(void);

#endif
