/* SPDX-License-Identifier: Apache-2.0 */
/* value_type.h — types of values by their names in numpy, and entries of several values. */
#ifndef RP_TOOLS_CONVERT_VALUE_TYPE_H
#define RP_TOOLS_CONVERT_VALUE_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "corpus/side_file.h"

/** The type of a value by numpy's name of it ("<f4"). False: no column has this type. */
bool rp_value_type(const char *descr, bool bf16, struct rp_side_type *type, uint32_t *width);
/** An entry has `count` values of `width` bytes. -RP_E_FORMAT: too many; `path` is for the message.
 */
RP_MUST_CHECK int rp_value_type_repeat(struct rp_side_type *type, uint32_t count, uint32_t width,
                                       const char *path, struct rp_error *error);

#endif
