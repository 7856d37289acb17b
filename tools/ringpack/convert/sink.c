/* SPDX-License-Identifier: Apache-2.0 */
/* sink.c — where the tokens of every document arrive: checked, counted and handed to the output. */
#include <inttypes.h>

#include "convert/convert.h"

int rp_convert_sink(void *context, const uint32_t *tokens, size_t count, struct rp_error *error)
{
    struct rp_convert *convert = context;
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = tokens[i] > largest ? tokens[i] : largest;
    if (largest >= convert->vocab_size)
        return rp_fail(error, -RP_E_VOCABULARY,
                       "give --vocab-size N, the vocabulary of the tokenizer that made them",
                       "%s:%" PRIu64 ": token ids: expected less than %" PRIu64 ", found %" PRIu32,
                       convert->path, convert->line, convert->vocab_size, largest);
    int code = rp_output_add(&convert->output, tokens, count,
                             convert->append_eos ? convert->eos : -1, error);
    if (code < 0)
        return code;
    return convert->output.token_count >= convert->max_tokens ? RP_CONVERT_ENOUGH : 0;
}
