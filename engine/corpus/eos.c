/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/eos.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "corpus/corpus_struct.h"

/* A source of fewer tokens is not judged. */
#define JUDGED_TOKENS_MIN 50000u
/* Documents are too long from this mean on. A library of whole books has documents of about 100,000
 * tokens. */
#define LONG_MEAN 262144u
/* The same, if a shard has at most FEW documents. */
#define FEW 16u
#define LONG_MEAN_OF_FEW 8192u
/* Documents are too short below this mean. */
#define SHORT_MEAN 8u
/* If a source has more documents, the longest one is not searched for. */
#define LENGTHS_MAX 65536u

static bool is_too_long(const struct rp_eos_facts *facts)
{
    uint64_t mean = facts->tokens / facts->documents;
    bool are_few = facts->documents <= FEW * facts->shards;
    return mean >= LONG_MEAN || (are_few && mean >= LONG_MEAN_OF_FEW);
}

bool rp_eos_doubt(const struct rp_eos_facts *facts, char *text, size_t bytes)
{
    if (facts->eos == RP_EOS_NONE || facts->documents == 0 || facts->tokens < JUDGED_TOKENS_MIN)
        return false;
    double share = 100 * (double)facts->documents / (double)facts->tokens;
    if (facts->documents == 1)
        snprintf(text, bytes,
                 "one document of %" PRIu64
                 " tokens, so the EOS never occurs within it: is %" PRId64 " the right eos?",
                 facts->tokens, facts->eos);
    else if (is_too_long(facts) && facts->longest)
        snprintf(text, bytes,
                 "%" PRIu64 " documents for %" PRIu64
                 " tokens, and the longest document has %" PRIu64 ": is %" PRId64 " the right eos?",
                 facts->documents, facts->tokens, facts->longest, facts->eos);
    else if (is_too_long(facts))
        snprintf(text, bytes,
                 "%" PRIu64 " documents for %" PRIu64 " tokens: is %" PRId64 " the right eos?",
                 facts->documents, facts->tokens, facts->eos);
    else if (facts->tokens / facts->documents < SHORT_MEAN)
        snprintf(text, bytes,
                 "%.0f %% of its tokens are the EOS, so documents have %.1f tokens: is %" PRId64
                 " the right eos?",
                 share, 100 / share, facts->eos);
    else
        return false;
    return true;
}

int64_t rp_eos_dividing(enum rp_format format, int64_t eos)
{
    bool divides = format == RP_FORMAT_RAW || format == RP_FORMAT_NPY || format == RP_FORMAT_LLMC;
    return divides ? eos : RP_EOS_NONE;
}

/* By the first shard: all shards of a source have one declared EOS. */
static int64_t eos_of(const struct rp_source *source)
{
    const struct rp_index_segment *segment = source->segments[0];
    struct rp_index_record record;
    if (segment->opened)
        return rp_eos_dividing(segment->opened->found.format, segment->opened->found.eos);
    return rp_index_get_record(segment, 0, &record, NULL)
               ? rp_eos_dividing(record.format, record.eos)
               : RP_EOS_NONE;
}

bool rp_source_eos_doubt(const struct rp_source *source, char *text, size_t bytes)
{
    struct rp_eos_facts facts = {.eos = eos_of(source),
                                 .documents = rp_source_documents(source),
                                 .tokens = rp_source_tokens(source),
                                 .shards = rp_source_shards(source)};
    if (!rp_eos_doubt(&facts, text, bytes))
        return false;
    for (uint64_t d = 0; facts.documents <= LENGTHS_MAX && d < facts.documents; d++) {
        uint64_t length = rp_source_length(source, d);
        facts.longest = rp_max_u64(facts.longest, length == UINT64_MAX ? 0 : length);
    }
    return rp_eos_doubt(&facts, text, bytes);
}
