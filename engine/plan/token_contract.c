/* SPDX-License-Identifier: Apache-2.0 */
/* token_contract.c — the stream record of a contract (base/contract.h), made from a plan or from a
 * state token, whose header has the same fields in binary. So a token of another stream is refused
 * by the name of the field that differs. STREAM.md section 9 defines the lines. */
#include <errno.h>
#include <inttypes.h>

#include "base/contract.h"
#include "base/mem.h"
#include "plan/token_records.h"

#define STREAM_VERSION 1u

/* The lines of a record are in alphabetical order. */
static void add_sources(struct rp_record_writer *writer, const struct rp_state_source *sources,
                        uint32_t source_count, const struct rp_plan_source *named)
{
    for (uint32_t s = 0; s < source_count; s++) {
        rp_contract_add_of(writer, "source", s, "documents", "%" PRIu64, sources[s].documents);
        if (named && named[s].name)
            rp_contract_add_of(writer, "source", s, "name", "%s",
                               rp_plan_source_word(&named[s], s).text);
        rp_contract_add_of(writer, "source", s, "weight", "%" PRIu64, sources[s].weight);
    }
}

/* `sources` is NULL if the token has another number of sources, whose table is not read. `named` is
 * NULL for a token, which has no names. */
static void add_stream(struct rp_record_writer *writer, const struct rp_state_header *header,
                       struct rp_hash128 tokenizer, const struct rp_state_source *sources,
                       const struct rp_plan_source *named)
{
    char hex[RP_HASH_HEX_BYTES];
    const struct rp_hash128 unknown = {0, 0};
    rp_contract_add(writer, "block_documents", "%" PRIu32, header->block_documents);
    if (!rp_hash128_equal(header->corpus_full, unknown))
        rp_contract_add(writer, "corpus_full", "%s", rp_hash128_hex(header->corpus_full, hex));
    rp_contract_add(writer, "corpus_sampled", "%s", rp_hash128_hex(header->corpus_sampled, hex));
    rp_contract_add(writer, "fill", "%s", rp_plan_row_gap_name((enum rp_row_gap)header->row_gap));
    rp_contract_add(writer, "lanes", "%" PRIu32, header->lanes);
    rp_contract_add(writer, "long_doc", "%s", rp_long_doc_name((enum rp_long_doc)header->long_doc));
    rp_contract_add(writer, "max_docs_per_row", "%" PRIu32, header->max_docs_per_row);
    rp_contract_add(writer, "num_epochs", "%" PRIu64, header->num_epochs);
    rp_contract_add(writer, "packing", "%s", rp_packing_name((enum rp_packing)header->packing));
    rp_contract_add(writer, "seed", "%" PRIu64, header->seed);
    rp_contract_add(writer, "seq_len", "%" PRIu32, header->seq_len);
    rp_contract_add(writer, "shuffle", "%s", rp_shuffle_name((enum rp_shuffle)header->shuffle));
    if (sources)
        add_sources(writer, sources, header->source_count, named);
    rp_contract_add(writer, "sources", "%" PRIu32, header->source_count);
    rp_contract_add(writer, "stream_version", "%u", STREAM_VERSION);
    if (rp_hash128_is_known(tokenizer))
        rp_contract_add(writer, "tokenizer", "%s", rp_hash128_hex(tokenizer, hex));
    rp_contract_add(writer, "window", "%" PRIu32, header->window);
    rp_contract_add(writer, "window_blocks", "%" PRIu32, header->window_blocks);
}

void rp_plan_contract(const struct rp_plan *plan, struct rp_record_writer *writer)
{
    if (plan->v2) { /* it has been made before: only memory can fail */
        if (rp_calendar_contract(plan->v2->now.calendar, writer, NULL) < 0)
            writer->out_of_memory = true;
        return;
    }
    struct rp_state_header header = rp_state_header_of(plan);
    struct rp_state_source *sources = rp_calloc(plan->source_count, sizeof *sources);
    if (!sources) {
        writer->out_of_memory = true;
        return;
    }
    for (uint32_t s = 0; s < plan->source_count; s++)
        sources[s] = (struct rp_state_source){plan->weights[s], plan->sources[s].documents};
    add_stream(writer, &header, plan->config.tokenizer, sources, plan->sources);
    free(sources);
}

/* The stream records of a token and of a plan. */
struct records {
    struct rp_record_writer token, plan;
};

static int compare(const struct records *records, uint64_t weight_unit, bool accept_weights,
                   struct rp_error *error)
{
    if (records->token.out_of_memory || records->plan.out_of_memory)
        return rp_fail(error, -ENOMEM, NULL, "no memory to compare a state token with this run");
    struct rp_contract had = {{records->token.text, records->token.bytes}, {"", 0}};
    struct rp_contract has = {{records->plan.text, records->plan.bytes}, {"", 0}};
    struct rp_contract_sides sides = {accept_weights ? RP_AT_REWEIGHTED : RP_AT_RESUME, "the state",
                                      "this run", weight_unit, 0};
    return rp_contract_compare(&had, &has, &sides, error);
}

/* Read the source table of a token. *sources_out is on the heap; NULL after a failure. */
static int read_sources(struct rp_state_reader *reader, uint32_t count,
                        struct rp_state_source **sources_out, struct rp_error *error)
{
    *sources_out = NULL;
    if (count > RP_SOURCES_MAX || count > reader->left / sizeof **sources_out)
        return RP_TOKEN_DAMAGED(error, ": a table of %" PRIu32 " sources does not fit into it",
                                count);
    struct rp_state_source *sources = rp_calloc((size_t)count + 1, sizeof *sources);
    if (!sources)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the %" PRIu32 " sources of a token",
                       count);
    bool is_read = rp_state_read(reader, sources, count * sizeof *sources);
    RP_ASSERT(is_read);
    *sources_out = sources;
    return 0;
}

static bool weights_differ_from(const struct rp_plan *plan, const struct rp_state_source *sources)
{
    for (uint32_t s = 0; s < plan->source_count; s++)
        if (sources[s].weight != plan->weights[s])
            return true;
    return false;
}

int rp_state_match(struct rp_state_reader *reader, const struct rp_state_header *header,
                   const struct rp_plan *plan, struct rp_state_accepts accepts,
                   bool *weights_differ, struct rp_error *error)
{
    struct records records = {.token = {.bytes = 0}};
    struct rp_state_source *sources = NULL;
    bool has_table = header->source_count == plan->source_count;
    int code = has_table ? read_sources(reader, plan->source_count, &sources, error) : 0;
    *weights_differ = sources && weights_differ_from(plan, sources);
    struct rp_state_header compared = *header;
    if (accepts.epochs)
        compared.num_epochs = plan->config.num_epochs;
    if (code == 0) {
        add_stream(&records.token, &compared, reader->tokenizer, sources, NULL);
        rp_plan_contract(plan, &records.plan);
        code = compare(&records, plan->config.weight_unit, accepts.weights, error);
    }
    free(records.token.text);
    free(records.plan.text);
    free(sources);
    return code;
}

int rp_state_contract(const void *token, size_t bytes, struct rp_record_writer *writer,
                      struct rp_error *error)
{
    struct rp_state_reader reader = {0};
    struct rp_state_header header;
    struct rp_state_source *sources = NULL;
    if (rp_v2_is_token(token, bytes))
        return rp_v2_state_contract(token, bytes, writer, error);
    int code = rp_state_open(&reader, &header, token, bytes, error);
    if (code == 0)
        code = read_sources(&reader, header.source_count, &sources, error);
    if (code < 0)
        return code;
    add_stream(writer, &header, reader.tokenizer, sources, NULL);
    free(sources);
    return writer->out_of_memory
               ? rp_fail(error, -ENOMEM, NULL, "no memory for the contract of a state token")
               : 0;
}
