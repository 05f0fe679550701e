/* SPDX-License-Identifier: Apache-2.0 */
/* Rate and phase, see pace.h. Pure. */
#include "daemon/monitor/pace.h"

#include "aliquot/share.h"

#define SIGNIFICANT_PCT 3u /* of a window; below it NVML's whole percents tell nothing */
#define COMPANY_PCT 1u     /* of the last seconds; others that do less are not there */
#define GAIN_NUM 3         /* of the error, three fifths are made up for at a time */
#define GAIN_DEN 5
#define ERROR_MAX_NS 1000000000
#define CHARGE_MAX_NS 20000000000u /* in a window; no gate runs further ahead */

static uint64_t fade(uint64_t sum, uint64_t wall_ns)
{
    return wall_ns < ALQ_PACE_MEMORY_NS ? sum - sum / 1000 * (wall_ns / (ALQ_PACE_MEMORY_NS / 1000))
                                        : 0;
}

/* What was charged when the window ended, between the last reading and this one. */
static uint64_t charged_at_end(const struct alq_pace *p, const struct alq_pace_window *w)
{
    if (w->charged_ns < p->read_charged_ns) /* somebody else writes into the usage file */
        return w->charged_ns;
    if (w->end_ns <= p->read_ns || w->now_ns <= p->read_ns)
        return p->end_charged_ns; /* what is missing now comes with the next window */
    const double part = (double)(w->end_ns - p->read_ns) / (double)(w->now_ns - p->read_ns);
    const uint64_t more = w->charged_ns - p->read_charged_ns;
    return p->read_charged_ns + (part < 1 ? (uint64_t)((double)more * part) : more);
}

static int is_missing(const struct alq_pace_window *w, uint64_t charged_ns)
{
    /* More than has passed is charged when something long was read back at last. */
    return !w->nvml_ns && charged_ns <= w->wall_ns + w->wall_ns / 20 &&
           charged_ns > w->others_ns + w->wall_ns / 100 * SIGNIFICANT_PCT;
}

/* What is charged may come in lumps, a window without is no rest yet. */
static void look_whether_shown(struct alq_pace *p, const struct alq_pace_window *w,
                               uint64_t charged_ns)
{
    const int is_charged = charged_ns > w->wall_ns / 100 * SIGNIFICANT_PCT;
    p->rest_ns = is_charged ? 0 : p->rest_ns + w->wall_ns;
    if (w->nvml_ns || p->rest_ns > ALQ_PACE_UNSHOWN_NS)
        p->unshown_ns = 0;
    else if (is_charged || p->unshown_ns)
        p->unshown_ns += w->wall_ns;
}

static uint32_t rate_of(const struct alq_pace *p, uint64_t wall_ns)
{
    uint64_t ppm = ALQ_TIME_CORRECTION_ONE;
    if (p->charged_ns > wall_ns / 100 * SIGNIFICANT_PCT)
        ppm = p->nvml_ns * ALQ_TIME_CORRECTION_ONE / p->charged_ns;
    if (ppm > ALQ_TIME_CORRECTION_ONE)
        ppm = ALQ_TIME_CORRECTION_ONE;
    if (ppm < ALQ_PACE_MIN_PPM)
        ppm = ALQ_PACE_MIN_PPM;
    uint32_t far = ppm > p->ppm ? (uint32_t)ppm - p->ppm : p->ppm - (uint32_t)ppm;
    return far < ALQ_PACE_STEP_PPM ? p->ppm : (uint32_t)ppm;
}

static int64_t clamp(int64_t value, int64_t most)
{
    return value > most ? most : value < -most ? -most : value;
}

/* No faster than the share's rate: its waiters would all go at once, or none for long. */
static int64_t make_up(struct alq_pace *p, const struct alq_pace_window *w)
{
    uint32_t pct = w->limit_pct ? w->limit_pct : 1;
    int64_t ns = clamp(p->error_ns / GAIN_DEN * GAIN_NUM, (int64_t)(w->wall_ns / 100 * pct));
    p->error_ns = clamp(p->error_ns - ns, ERROR_MAX_NS);
    return ns;
}

static void stay_alone(struct alq_pace *p, struct alq_pace_order *out)
{
    p->error_ns = 0;
    p->ppm = ALQ_TIME_CORRECTION_ONE;
    *out = (struct alq_pace_order){.ppm = ALQ_TIME_CORRECTION_ONE};
}

void alq_pace(struct alq_pace *p, const struct alq_pace_window *w, struct alq_pace_order *out)
{
    const int is_first = !p->read_ns;
    const uint64_t end = is_first ? w->charged_ns : charged_at_end(p, w);
    uint64_t charged_ns = !is_first && end > p->end_charged_ns ? end - p->end_charged_ns : 0;
    if (charged_ns > CHARGE_MAX_NS)
        charged_ns = CHARGE_MAX_NS;
    p->read_ns = w->now_ns;
    p->read_charged_ns = w->charged_ns;
    p->end_charged_ns = end;
    if (!p->ppm)
        p->ppm = ALQ_TIME_CORRECTION_ONE;
    *out = (struct alq_pace_order){.ppm = p->ppm,
                                   .is_contended = p->others_ns > p->wall_ns / 100 * COMPANY_PCT};
    if (is_first || !w->wall_ns)
        return;
    look_whether_shown(p, w, charged_ns);
    if (p->unshown_ns > ALQ_PACE_UNSHOWN_NS) {
        p->wall_ns = p->nvml_ns = p->others_ns = p->charged_ns = 0;
        stay_alone(p, out);
        return;
    }
    if (is_missing(w, charged_ns))
        return;
    p->wall_ns = fade(p->wall_ns, w->wall_ns) + w->wall_ns;
    p->nvml_ns = fade(p->nvml_ns, w->wall_ns) + w->nvml_ns;
    p->others_ns = fade(p->others_ns, w->wall_ns) + w->others_ns;
    p->charged_ns = fade(p->charged_ns, w->wall_ns) + charged_ns;
    p->error_ns +=
        (int64_t)((double)charged_ns * p->ppm / ALQ_TIME_CORRECTION_ONE) - (int64_t)w->nvml_ns;
    if (p->others_ns <= p->wall_ns / 100 * COMPANY_PCT) {
        stay_alone(p, out);
        return;
    }
    *out = (struct alq_pace_order){.credit_ns = make_up(p, w), .is_contended = 1};
    out->ppm = p->ppm = rate_of(p, w->wall_ns);
}
