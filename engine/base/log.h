/* SPDX-License-Identifier: Apache-2.0 */
/* log.h — one line on stderr for each event. Threads that move data do not log. */
#ifndef RP_BASE_LOG_H
#define RP_BASE_LOG_H

enum rp_log_level { RP_LOG_ERROR, RP_LOG_WARNING, RP_LOG_INFO };

void rp_log_set_level(enum rp_log_level level); /* INFO at start */
void rp_log(enum rp_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
