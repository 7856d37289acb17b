/* SPDX-License-Identifier: Apache-2.0 */
/* kept.h — a config as a checkpoint keeps it: the text of the file, then comments with the settings
 * that are not in the text.
 *
 *     # ringpack: file /corpora/config.yaml     (or: # ringpack: no file)
 *     # ringpack: batch_size 16
 *
 * A line of a file may look like one of these, because it was copied out of a checkpoint. So only
 * the lines from the last `file` or `no file` on count. In a value, `\n` stands for a newline and
 * `\\` for a backslash. */
#ifndef RP_CONFIG_KEPT_H
#define RP_CONFIG_KEPT_H

#define RP_KEPT_LINE "# ringpack: "
#define RP_KEPT_FILE "file "
#define RP_KEPT_NO_FILE "no file"

#endif
