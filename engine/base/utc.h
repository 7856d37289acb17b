/* SPDX-License-Identifier: Apache-2.0 */
/* utc.h — a moment of the wall clock as text, for people and for files. No event is ordered by it
 * (clock.h). gmtime_r and strftime take a lock, which a process that was forked from several
 * threads must not take; these functions take none. */
#ifndef RP_BASE_UTC_H
#define RP_BASE_UTC_H

#include <time.h>

#define RP_UTC_BYTES 64 /* enough for any moment */

/** "2026-11-22T20:15:02.123Z", by the Gregorian calendar. `moment` is not before 1970. */
void rp_utc_text(const struct timespec *moment, char text[RP_UTC_BYTES]);
/** The same of this moment. */
void rp_utc_now(char text[RP_UTC_BYTES]);

#endif
