/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.h — the cgroup of this process and its ancestors, whose limits all apply to it. */
#ifndef RP_BASE_CGROUP_H
#define RP_BASE_CGROUP_H

/* The two versions of cgroups have different files. */
enum rp_cgroup_version { RP_CGROUP_V1, RP_CGROUP_V2 };

/** Call `visit` for the directory of this process's own cgroup, and for each ancestor's directory
 * up to the root of the mount. In version 1 each controller ("memory", "cpu") has a mount of its
 * own. `root` is the prefix of all paths: "" for this machine. A directory need not exist. */
void rp_cgroup_visit(const char *root, enum rp_cgroup_version version, const char *controller,
                     void (*visit)(void *context, const char *directory), void *context);

#endif
