/* SPDX-License-Identifier: Apache-2.0 */
#include "alerts/alert.h"

#include "base/bits.h"
#include "base/fail.h"

#define SECOND_NS UINT64_C(1000000000)
#define PAUSE_NS SECOND_NS /* between two checks */
#define SHORT_PAUSE_NS (SECOND_NS / 10)

static const struct {
    const char *name;
    uint64_t raises_after_ns, calm_ns;
} kinds[RP_ALERT_KINDS] = {
    [RP_ALERT_STARVED] = {"starved", 0, 60 * SECOND_NS},
    [RP_ALERT_SKEW] = {"skew", SECOND_NS, 60 * SECOND_NS},
    [RP_ALERT_DISK_FREE] = {"disk_free", 0, 60 * SECOND_NS},
    [RP_ALERT_SAVE_FAILED] = {"save_failed", 0, 0},
    [RP_ALERT_COPY_FAILED] = {"copy_failed", 0, 0},
    [RP_ALERT_ENGINE_FAILED] = {"engine_failed", 0, 0},
    [RP_ALERT_ENGINE_SILENT] = {"engine_silent", 0, 0},
};

const char *rp_alert_name(enum rp_alert_kind kind)
{
    RP_ASSERT(kind < RP_ALERT_KINDS);
    return kinds[kind].name;
}

/* ---- signs ----------------------------------------------------------------------------------- */

/* The state of a value that should stay below its limit. */
static enum rp_alert_sign sign_below(uint64_t value, uint64_t limit)
{
    if (limit == 0 || value <= limit / 2)
        return RP_SIGN_GOOD;
    return value >= limit ? RP_SIGN_BAD : RP_SIGN_UNSURE;
}

static enum rp_alert_sign sign_of_disk(uint64_t free_bytes, uint64_t limit)
{
    if (limit == 0)
        return RP_SIGN_GOOD;
    if (free_bytes == RP_FREE_UNKNOWN)
        return RP_SIGN_UNSURE;
    if (free_bytes < limit)
        return RP_SIGN_BAD;
    return free_bytes - limit >= limit / 10 ? RP_SIGN_GOOD : RP_SIGN_UNSURE;
}

static enum rp_alert_sign sign_of_failure(bool has_failed)
{
    return has_failed ? RP_SIGN_BAD : RP_SIGN_GOOD;
}

enum rp_alert_sign rp_alert_sign(enum rp_alert_kind kind, const struct rp_alert_limits *limits,
                                 const struct rp_alert_view *view)
{
    switch (kind) {
    case RP_ALERT_STARVED:
        return view->is_running ? sign_below(view->starved_ns, limits->starved_ns) : RP_SIGN_UNSURE;
    case RP_ALERT_SKEW:
        return view->is_running ? sign_below(view->skew_rows, limits->skew_rows) : RP_SIGN_UNSURE;
    case RP_ALERT_DISK_FREE:
        return sign_of_disk(view->free_bytes, limits->free_bytes);
    case RP_ALERT_SAVE_FAILED:
        return view->answers ? sign_of_failure(view->save_failed) : RP_SIGN_UNSURE;
    case RP_ALERT_COPY_FAILED:
        return view->answers ? sign_of_failure(view->copy_failed) : RP_SIGN_UNSURE;
    case RP_ALERT_ENGINE_FAILED:
        return sign_of_failure(view->engine_failed);
    case RP_ALERT_ENGINE_SILENT:
        return view->silent_ns == 0                     ? RP_SIGN_GOOD
               : view->silent_ns >= RP_ALERT_SILENCE_NS ? RP_SIGN_BAD
                                                        : RP_SIGN_UNSURE;
    case RP_ALERT_KINDS:
        break;
    }
    RP_ASSERT(false);
    return RP_SIGN_UNSURE;
}

/* ---- states ---------------------------------------------------------------------------------- */

static void note_sign(struct rp_alert *alert, enum rp_alert_sign sign, uint64_t now_ns)
{
    if (sign != RP_SIGN_BAD) {
        alert->bad_since_ns = 0;
        return;
    }
    alert->bad_ns = now_ns;
    if (alert->bad_since_ns == 0)
        alert->bad_since_ns = now_ns;
}

static bool may_run(const struct rp_alert *alert, uint64_t now_ns)
{
    return alert->run_ns == 0 || now_ns - alert->run_ns >= RP_ALERT_PERIOD_NS;
}

static void note_command(struct rp_alert *alert, uint64_t now_ns)
{
    alert->state = RP_ALERT_RAISED;
    alert->run_ns = now_ns;
    alert->commands++;
}

enum rp_alert_step rp_alert_evaluate(struct rp_alert *alert, enum rp_alert_kind kind,
                                     enum rp_alert_sign sign, uint64_t now_ns)
{
    RP_ASSERT(kind < RP_ALERT_KINDS && now_ns >= alert->raised_ns && now_ns > 0);
    note_sign(alert, sign, now_ns);
    bool is_quiet = alert->state == RP_ALERT_QUIET;
    if (sign == RP_SIGN_GOOD && !is_quiet && now_ns - alert->bad_ns >= kinds[kind].calm_ns) {
        alert->state = RP_ALERT_QUIET;
        return RP_ALERT_CLEAR;
    }
    if (sign == RP_SIGN_BAD && is_quiet &&
        now_ns - alert->bad_since_ns >= kinds[kind].raises_after_ns) {
        alert->times++;
        alert->raised_ns = now_ns;
        alert->state = RP_ALERT_OWED;
        if (!may_run(alert, now_ns))
            return RP_ALERT_RAISE;
        note_command(alert, now_ns);
        return RP_ALERT_RAISE_AND_RUN;
    }
    if (alert->state == RP_ALERT_OWED && may_run(alert, now_ns)) {
        note_command(alert, now_ns);
        return RP_ALERT_RUN;
    }
    return RP_ALERT_NOTHING;
}

uint64_t rp_alert_pause_ns(const struct rp_alert_limits *limits, const struct rp_alert_view *view,
                           const struct rp_alert alerts[RP_ALERT_KINDS])
{
    const struct rp_alert *skew = &alerts[RP_ALERT_SKEW];
    uint64_t limit = limits->starved_ns;
    bool waits = view->starved_ns > limit / 2 && view->starved_ns < limit;
    bool is_apart = skew->bad_since_ns && skew->state == RP_ALERT_QUIET;
    if (waits || is_apart)
        return SHORT_PAUSE_NS;
    return limit ? rp_max_u64(SHORT_PAUSE_NS, rp_min_u64(PAUSE_NS, limit / 2)) : PAUSE_NS;
}
