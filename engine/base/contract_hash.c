/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/contract.h"

bool rp_contract_knows_whole(const struct rp_contract *contract)
{
    struct rp_field field;
    return rp_record_find(&contract->stream, "corpus_full", &field);
}

static struct rp_hash128 hash_without_records(const struct rp_record *stream)
{
    struct rp_hasher hasher;
    struct rp_field field;
    rp_hasher_begin(&hasher);
    for (size_t at = 0, line = 0; rp_record_next(stream, &at, &field); line = at)
        if (field.sign != ':' &&
            strncmp(field.name, RP_CONTRACT_RECORD, strlen(RP_CONTRACT_RECORD)) != 0)
            rp_hasher_add(&hasher, stream->text + line, at - line);
    return rp_hasher_finish(&hasher);
}

struct rp_hash128 rp_contract_hash(const struct rp_contract *contract)
{
    struct rp_hash128 hashes[2] = {hash_without_records(&contract->stream),
                                   rp_record_hash(&contract->delivery)};
    return rp_hash128(hashes, sizeof hashes);
}
