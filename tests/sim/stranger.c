/* SPDX-License-Identifier: Apache-2.0 */
/* stranger.c — a peer that requests a seat at a row that cannot be delivered: it is after the end
 * of the stream, and no micro-batch begins there.
 *
 * While a trainer is attached, the engine must refuse the request at once. Otherwise the engine
 * plans towards that row, and must serve all others meanwhile. The stranger leaves before, or is
 * refused when the end of the stream is reached. It must never get a seat. */
#include "story.h"

#include <stdlib.h>
#include <string.h>

#include "director.h"
#include "../unit/receive.h"

#define ROWS_AHEAD 1000000u

static uint64_t next_row_of_engine(void)
{
    static const char key[] = "\"next_row\":";
    char *text = NULL;
    struct rp_error error;
    if (rp_run_stat("/run", NULL, &text, &error) < 0)
        return UINT64_MAX;
    const char *at = strstr(text, key);
    uint64_t row = at ? strtoull(at + strlen(key), NULL, 10) : UINT64_MAX;
    rp_text_free(text);
    return row;
}

/* A row that begins no micro-batch, whether they are counted from the engine's row or from the
 * trainers' step. */
static uint64_t made_up_row(const struct life *life, uint64_t next_row)
{
    uint64_t rows = (uint64_t)life->world * life->batch, row = next_row + rows * ROWS_AHEAD;
    while (row % rows == next_row % rows || row % rows == life->step_row % rows)
        row++;
    return row;
}

static void *stranger_main(void *argument)
{
    struct story *story = argument;
    static uint8_t message[4096];
    struct rp_error error;
    struct rp_reply reply;
    uint64_t next_row = next_row_of_engine();
    int fds[2], fd = next_row == UINT64_MAX ? -1 : rp_socket_connect("/run", "default", &error);
    if (fd < 0)
        sim_exit(0);
    struct rp_request request = {.magic = RP_MESSAGE_MAGIC,
                                 .abi_version = RP_ABI_VERSION,
                                 .kind = RP_REQUEST_ATTACH,
                                 .run = "default",
                                 .rank = story->life.rank_first +
                                         (uint32_t)story_below(story, story->life.ranks),
                                 .next_row = made_up_row(&story->life, next_row),
                                 .step_row = RP_NEXT_ROW_ANY};
    if (rp_socket_send(fd, &(struct rp_message){.header = &request, .header_bytes = sizeof request},
                       &error) < 0)
        sim_exit(0);
    int64_t bytes = receive_into(fd, message, sizeof message, fds, 1 + (int)story_below(story, 30),
                                 &error);
    if (bytes >= (int64_t)sizeof reply) {
        memcpy(&reply, message, sizeof reply);
        sim_trace("the stranger is answered: %d", reply.code);
        if (reply.kind == RP_REPLY_WELCOME)
            sim_fail("a made-up row was welcomed");
    }
    sim_exit(0);
}

void director_send_stranger(struct story *story)
{
    if ((uint64_t)story->life.world * story->life.batch < 3 || !story->life.begun)
        return;
    (void)sim_spawn("stranger", stranger_main, story);
    story->counts.strangers++;
}
