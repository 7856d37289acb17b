/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utc.h"

#include <stdio.h>

/* Years, and eras of 400 of them, begin on March 1 here, so that a leap day is the last day. */
void rp_utc_text(const struct timespec *moment, char text[RP_UTC_BYTES])
{
    unsigned long long seconds = (unsigned long long)moment->tv_sec;
    unsigned long long days = seconds / 86400 + 719468; /* since 0000-03-01 */
    unsigned of_day = (unsigned)(seconds % 86400);
    unsigned long long era = days / 146097, of_era = days % 146097;
    unsigned long long year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    unsigned of_year = (unsigned)(of_era - (365 * year + year / 4 - year / 100));
    unsigned month = (5 * of_year + 2) / 153; /* from March */
    unsigned day = of_year - (153 * month + 2) / 5 + 1;
    year += era * 400 + (month >= 10);
    snprintf(text, RP_UTC_BYTES, "%04llu-%02u-%02uT%02u:%02u:%02u.%03uZ", year,
             month < 10 ? month + 3 : month - 9, day, of_day / 3600, of_day / 60 % 60, of_day % 60,
             (unsigned)(moment->tv_nsec / 1000000));
}

void rp_utc_now(char text[RP_UTC_BYTES])
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    rp_utc_text(&now, text);
}
