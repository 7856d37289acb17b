/* SPDX-License-Identifier: Apache-2.0 */
/* sink.c — checks and counts the tokens of every document, and hands them to the output. */
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "convert/convert.h"

static uint32_t largest_id(const struct rp_ids *ids)
{
    uint32_t largest = 0;
    if (ids->width == 2) {
        const uint8_t *at = ids->at;
        uint16_t narrow = 0;
        for (size_t i = 0; i < ids->count; i++) {
            uint16_t id = rp_load_u16(at + 2 * i);
            narrow = id > narrow ? id : narrow;
        }
        largest = narrow;
    } else {
        const uint8_t *at = ids->at;
        for (size_t i = 0; i < ids->count; i++) {
            uint32_t id = rp_load_u32(at + 4 * i);
            largest = id > largest ? id : largest;
        }
    }
    return largest;
}

static int fail_vocabulary(const struct rp_convert *convert, uint64_t limit, uint32_t found,
                           struct rp_error *error)
{
    return rp_fail(error, -RP_E_VOCABULARY,
                   "give --vocab-size N, the vocabulary of the tokenizer that made them",
                   "%s%s%" PRIu64 ": token ids: expected less than %" PRIu64 ", found %" PRIu32,
                   convert->path, convert->in_rows ? ": row " : ":", convert->line, limit, found);
}

/* The halves of a pair are neighbours, and a group of a stream: all documents of an output are, or
 * none is. */
static int check_pairs(struct rp_convert *convert, bool is_half, struct rp_error *error)
{
    bool were_halves = convert->counts.paired > 0;
    if (is_half && convert->max_tokens != UINT64_MAX)
        return rp_fail(error, -RP_E_USAGE, "leave it out",
                       "%s: --max-tokens would cut a pair of `chosen` and `rejected`",
                       convert->path);
    if (convert->output.documents > 0 && is_half != were_halves)
        return rp_convert_fail_mixed(convert->path, error);
    convert->counts.paired += is_half;
    return 0;
}

int rp_convert_fail_mixed(const char *path, struct rp_error *error)
{
    return rp_fail(error, -RP_E_USAGE, "convert each kind to an output of its own",
                   "%s: pairs of `chosen` and `rejected` stand next to other documents", path);
}

int rp_convert_sink(void *context, const struct rp_ids *ids, struct rp_error *error)
{
    struct rp_convert *convert = context;
    struct rp_output *output = &convert->output;
    struct rp_ends ends = {convert->bos, convert->append_eos ? convert->eos : -1};
    uint64_t limit = convert->vocab_size ? convert->vocab_size : (uint64_t)INT32_MAX + 1;
    uint32_t largest = largest_id(ids);
    bool is_half = ids->trained.origin && !strcmp(ids->trained.origin->name, RP_MASK_OF_PAIRS);
    struct rp_entries sides[RP_SIDES_MAX];
    int failed = rp_convert_sides_take(convert, ids, sides, error);
    if (failed < 0)
        return convert->skip_bad && failed == -RP_E_FORMAT ? rp_convert_skip(convert, error)
                                                           : failed;
    int mixed = check_pairs(convert, is_half, error);
    if (mixed < 0)
        return mixed;
    if (largest >= limit) {
        failed = fail_vocabulary(convert, limit, largest, error);
        convert->line += convert->in_rows && convert->skip_bad;
        return convert->skip_bad && !is_half ? rp_convert_skip(convert, error) : failed;
    }
    if (largest >= RP_OUTPUT_IDS_NARROW && !output->wide)
        return RP_CONVERT_WIDER;
    /* An empty row stays an empty document, so that row and document keep one number. */
    if (ids->count == 0 || ids->has_ends)
        ends = (struct rp_ends){-1, -1};
    struct rp_ids taken = *ids;
    taken.sides = sides;
    if (rp_mask_is_none(&convert->mask))
        taken.trained.origin = NULL;
    int code = rp_output_add(output, &taken, ends, error);
    if (code == -RP_E_FORMAT && convert->path)
        return rp_fail_context(error, code, "%s%s%" PRIu64, convert->path,
                               convert->in_rows ? ": row " : ":", convert->line);
    if (code < 0)
        return code;
    output->token_max = rp_max_u64(output->token_max, largest);
    convert->line += convert->in_rows;
    if (convert->done_tokens) {
        atomic_fetch_add(convert->done_tokens, output->token_count - convert->told_tokens);
        convert->told_tokens = output->token_count;
    }
    return output->token_count >= convert->max_tokens ? RP_CONVERT_ENOUGH : 0;
}

void rp_convert_tell(struct rp_convert *convert, uint64_t bytes)
{
    if (!convert->done_bytes || bytes <= convert->told_bytes)
        return;
    atomic_fetch_add(convert->done_bytes, bytes - convert->told_bytes);
    convert->told_bytes = bytes;
}
