/* SPDX-License-Identifier: Apache-2.0 */
/* search.h — the query of `ringpack explain`, and its rows. */
#ifndef RP_TOOLS_SEARCH_H
#define RP_TOOLS_SEARCH_H

#include "explain/explain.h"

struct rp_range {
    uint64_t first, last;
    bool is_given;
};

/* At most one of step, rows and documents is given. With none, all documents are searched. */
struct rp_search {
    uint64_t step, rank;
    bool step_given, rank_given;
    struct rp_range rows, documents, epochs;
    const char *source; /* the documents' */
    const char *text;   /* NULL = any */
};

RP_MUST_CHECK int rp_search_run(const struct rp_search *search, struct rp_walk *walk,
                                struct rp_row_maker *maker, struct rp_printer *printer,
                                struct rp_error *error);

#endif
