/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/memory_lines.h"

#include <stdio.h>

#include "cmd.h"

void rp_footprint_print(const struct rp_config *config, const struct rp_engine_memory *memory)
{
    char text[RP_CMD_TEXT_BYTES];
    uint64_t always = memory->batch_rings + memory->process;
    puts(
        "memory of the engine, without the pages of mapped files and the contents of a checkpoint");
    printf("  %-20s%s\n", "batch rings", rp_cmd_bytes_text(memory->batch_rings, text));
    printf("  %-20s%s\n", "in all", rp_cmd_bytes_text(always + memory->flow_reading, text));
    if (config->io == RP_IO_MAPPED) /* if they cannot be mapped, they are read */
        printf("  %-20s%s, as token files are mapped\n", "",
               rp_cmd_bytes_text(always + memory->flow_mapped, text));
    if (memory->catch_up)
        printf("  %-20s%s more for each rank that catches up with the others\n", "",
               rp_cmd_bytes_text(memory->catch_up, text));
}

json_t *rp_footprint_json(const struct rp_engine_memory *memory)
{
    uint64_t always = memory->batch_rings + memory->process;
    return json_pack("{s:I, s:I, s:I, s:I}", "batch_rings_bytes", (json_int_t)memory->batch_rings,
                     "reading_bytes", (json_int_t)always + (json_int_t)memory->flow_reading,
                     "mapped_bytes", (json_int_t)always + (json_int_t)memory->flow_mapped,
                     "catch_up_bytes", (json_int_t)memory->catch_up);
}
