/* SPDX-License-Identifier: Apache-2.0 */
/* notify.h — notifies the service manager that started the engine: trainers can attach, by the
 * protocol of sd_notify(3): a datagram to the socket that NOTIFY_SOCKET names, if it is set. It
 * waits up to 5 seconds for room in the manager's queue; a failure is a warning in the log. */
#ifndef RP_SERVER_NOTIFY_H
#define RP_SERVER_NOTIFY_H

void rp_notify_ready(void);

#endif
