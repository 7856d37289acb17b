/* SPDX-License-Identifier: Apache-2.0 */
/* errno_name.h — "ENOENT" for ENOENT. glibc has strerrorname_np since 2.32 only. */
#ifndef RP_BASE_ERRNO_NAME_H
#define RP_BASE_ERRNO_NAME_H

/** "unknown" for a number that is no errno. */
const char *rp_errno_name(int number);

#endif
