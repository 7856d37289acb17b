/* SPDX-License-Identifier: Apache-2.0 */
#include "server/read_mode.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "flow/cached.h"
#include "flow/residency.h"
#include "io/io.h"
#include "server/rate_samples.h"
#include "server/stat_parts.h"

#define RECENT_NS UINT64_C(10000000000)
#define LOG_NS UINT64_C(10000000000) /* at least, from one line of the log to the next */

/* ---- at the start ---------------------------------------------------------------------------- */

static void choose(struct rp_engine *engine, uint64_t file_bytes, struct rp_flow_options *options)
{
    const struct rp_config *c = engine->config;
    bool has_files = file_bytes > 0;
    engine->delivery.o_direct = has_files &&
                                (c->o_direct == RP_SWITCH_ON || (c->o_direct == RP_SWITCH_AUTO &&
                                                                 rp_io_prefers_direct(file_bytes)));
    options->o_direct = engine->delivery.o_direct;
    options->adapts = has_files && c->io == RP_IO_AUTO;
    options->mapped = has_files &&
                      (c->io == RP_IO_MAPPED ||
                       (options->adapts &&
                        rp_cached_is_whole(engine->stream.corpus, &rp_page_cache_of_kernel)));
    options->may_buffer = c->o_direct != RP_SWITCH_ON;
    options->may_direct = c->o_direct != RP_SWITCH_OFF;
}

static void log_choice(const struct rp_delivery *delivery, bool has_files,
                       const struct rp_flow_options *options, const char *why)
{
    bool has_objects = delivery->io.method == rp_io_objects();
    bool reads_files = has_files && (!options->mapped || options->adapts);
    if (options->mapped)
        rp_log(RP_LOG_INFO, "%s: token files are mapped",
               delivery->config->io == RP_IO_MAPPED ? "io: mapped"
               : has_objects                        ? "the page cache holds all files"
                                                    : "the page cache holds the corpus");
    if (reads_files)
        rp_log(RP_LOG_INFO, "%s; %s reads", why, options->o_direct ? "direct" : "buffered");
    else if (has_objects)
        rp_log(RP_LOG_INFO, "%s", why);
}

void rp_engine_choose_read_mode(struct rp_engine *engine, struct rp_flow_options *options,
                                const char *why)
{
    uint64_t file_bytes = rp_corpus_file_bytes(engine->stream.corpus);
    choose(engine, file_bytes, options);
    log_choice(&engine->delivery, file_bytes > 0, options, why);
}

/* ---- the recent past ------------------------------------------------------------------------- */

/* Recent bytes a second, by enum rp_read_mode. */
struct speeds {
    double of[RP_READ_MAPPED + 1], all;
};

static struct speeds recent_speeds(const struct rp_engine *engine)
{
    struct rp_rate_sample now = rp_delivery_sample(&engine->delivery);
    const struct rp_rate_samples *rates = &engine->watching.rates;
    struct speeds s = {.all = rp_rate_of(rates, &now, RP_RATE_TAKEN_BYTES, RECENT_NS)};
    double buffered = rp_rate_of(rates, &now, RP_RATE_BUFFERED_BYTES, RECENT_NS);
    double direct = rp_rate_of(rates, &now, RP_RATE_DIRECT_BYTES, RECENT_NS);
    s.of[RP_READ_BUFFERED] = buffered;
    s.of[RP_READ_DIRECT] = direct;
    s.of[RP_READ_MAPPED] = s.all > buffered + direct ? s.all - buffered - direct : 0;
    return s;
}

static enum rp_read_mode first_mode(const struct rp_delivery *delivery)
{
    return rp_flow_is_mapped(delivery->flow) ? RP_READ_MAPPED
           : delivery->o_direct              ? RP_READ_DIRECT
                                             : RP_READ_BUFFERED;
}

/* The mode of most tokens. */
static enum rp_read_mode main_mode(const struct rp_delivery *delivery, const struct speeds *speeds)
{
    if (!rp_flow_page_cache(delivery->flow).is_watched || speeds->all <= 0)
        return first_mode(delivery);
    enum rp_read_mode mode = RP_READ_MAPPED;
    for (enum rp_read_mode other = RP_READ_BUFFERED; other < RP_READ_MAPPED; other++)
        mode = speeds->of[other] > speeds->of[mode] ? other : mode;
    return mode;
}

/* The name of the read method, if tokens are read: the method of most readers. */
static const char *method_name(const struct rp_delivery *delivery)
{
    struct rp_flow_readers readers = rp_flow_readers(delivery->flow);
    bool fell_back = delivery->io.method == &rp_io_method_uring &&
                     readers.refused > readers.count / 2;
    return fell_back ? rp_io_method_pread.name : delivery->io.method->name;
}

static void explain(const struct rp_delivery *delivery, char *text, size_t text_bytes)
{
    struct rp_flow_page_cache cache = rp_flow_page_cache(delivery->flow);
    int decimals = cache.corpus_bytes < 10000000 ? 3
                                                 : 0; /* digits of MB: a small corpus is not 0 MB */
    if (cache.is_watched)
        snprintf(text, text_bytes,
                 "the page cache holds %.*f MB of %.*f MB of token files, and memory has "
                 "room for %.0f MB of them",
                 decimals, (double)cache.held_bytes * 1e-6, decimals,
                 (double)cache.corpus_bytes * 1e-6, (double)cache.room_bytes * 1e-6);
    else if (delivery->config->io == RP_IO_AUTO)
        snprintf(text, text_bytes, "chosen at the start: it cannot follow the page cache here");
    else
        snprintf(text, text_bytes, "as `io` and `o_direct` say");
}

/* Append the number of readers that were refused io_uring. */
static void explain_readers(const struct rp_delivery *delivery, char *text, size_t text_bytes)
{
    struct rp_flow_readers readers = rp_flow_readers(delivery->flow);
    size_t length = strlen(text);
    if (readers.refused)
        snprintf(text + length, text_bytes - length, "; %u of %u readers read with pread: %s",
                 readers.refused, readers.count, readers.why->message);
}

void rp_engine_log_refused_readers(struct rp_engine *engine)
{
    struct rp_flow_readers readers = rp_flow_readers(engine->delivery.flow);
    if (!readers.refused || engine->watching.logged_refusal)
        return;
    engine->watching.logged_refusal = true;
    rp_log(RP_LOG_WARNING, "%u of %u readers read with pread, and the rows are the same: %s%s%s",
           readers.refused, readers.count, readers.why->message, readers.why->hint[0] ? "; " : "",
           readers.why->hint);
}

void rp_engine_log_read_mode(struct rp_engine *engine)
{
    struct rp_delivery *delivery = &engine->delivery;
    const char *const words[] = {
        [RP_READ_BUFFERED] = delivery->io.method == rp_io_objects()
                                 ? "read from a store, or through the page cache,"
                                 : "read through the page cache",
        [RP_READ_DIRECT] = "read past the page cache",
        [RP_READ_MAPPED] = "taken from mapped files",
    };
    uint64_t now = rp_rate_last_ns(&engine->watching.rates);
    if (now == engine->watching.checked_mode_ns || !rp_flow_page_cache(delivery->flow).is_watched)
        return;
    if (engine->watching.checked_mode_ns == 0) /* rp_engine_choose_read_mode has logged it */
        engine->watching.logged_mode = first_mode(delivery);
    engine->watching.checked_mode_ns = now;
    struct speeds speeds = recent_speeds(engine);
    enum rp_read_mode mode = main_mode(delivery, &speeds);
    if (mode == engine->watching.logged_mode ||
        (engine->watching.logged_mode_ns && now - engine->watching.logged_mode_ns < LOG_NS))
        return;
    char why[160];
    explain(delivery, why, sizeof why);
    rp_log(RP_LOG_INFO, "most tokens are %s now: %s", words[mode], why);
    engine->watching.logged_mode = mode;
    engine->watching.logged_mode_ns = now;
}

void rp_stat_add_read_mode(json_t *object, const struct rp_engine *engine,
                           const struct rp_flow_counts *counts)
{
    const struct rp_delivery *delivery = &engine->delivery;
    static const char *const keys[] = {
        [RP_READ_BUFFERED] = "buffered_share",
        [RP_READ_DIRECT] = "direct_share",
        [RP_READ_MAPPED] = "mapped_share",
    };
    struct rp_flow_page_cache cache = rp_flow_page_cache(delivery->flow);
    struct speeds speeds = recent_speeds(engine);
    enum rp_read_mode main = main_mode(delivery, &speeds);
    char why[320];
    explain(delivery, why, sizeof why);
    explain_readers(delivery, why, sizeof why);
    json_object_set_new(object, "io",
                        json_string(main == RP_READ_MAPPED ? "mapped" : method_name(delivery)));
    json_object_set_new(object, "direct",
                        json_boolean(cache.is_watched && speeds.all > 0 ? main == RP_READ_DIRECT
                                                                        : delivery->o_direct));
    json_object_set_new(object, "io_reason", json_string(why));
    for (enum rp_read_mode mode = RP_READ_BUFFERED; mode <= RP_READ_MAPPED; mode++)
        json_object_set_new(object, keys[mode],
                            speeds.all > 0 ? json_real(speeds.of[mode] / speeds.all) : json_null());
    uint64_t read = counts->buffered_bytes + counts->direct_bytes;
    uint64_t mapped = counts->taken_bytes > read ? counts->taken_bytes - read : 0;
    rp_stat_set_count(object, "mapped_bytes", mapped);
    rp_stat_set_count(object, "buffered_bytes", counts->buffered_bytes);
    rp_stat_set_count(object, "direct_bytes", counts->direct_bytes);
    json_object_set_new(object, "page_cache_bytes",
                        cache.is_watched ? json_integer((json_int_t)cache.held_bytes)
                                         : json_null());
    json_object_set_new(object, "page_cache_room_bytes",
                        cache.is_watched ? json_integer((json_int_t)cache.room_bytes)
                                         : json_null());
}
