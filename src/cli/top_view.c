/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of aliquot top, see top_view.h. Widths are found once a table: what is worth least is
 * left out first where it is narrow, and what is left over goes to the name, bars and history.
 */
#include "cli/top_view.h"

#include <string.h>

#define NAME_MIN 12
#define MEMORY_WIDTH 13 /* "99.9Gi/99.9Gi" */
#define COMPUTE_WIDTH 8 /* "100/100%" */
#define COUNT_WIDTH 4
#define BAR_MIN 6
#define BAR_MAX 20
#define HISTORY_MIN 8
#define HISTORY_MAX 40

enum colour { PLAIN, BOLD, DIM, GREEN, YELLOW, RED };
static const char *const codes[] = {"", "1", "2", "32", "33", "31"};

struct line {
    const struct alq_top_look *look;
    FILE *out;
    int left;   /* columns */
    int blanks; /* not written yet; those at the end of a line never are */
};

struct widths {
    int name, bar, history, count, note;
};

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* ---- pieces -----------------------------------------------------------------------------------
 */

static void flush_blanks(struct line *l)
{
    fprintf(l->out, "%*s", l->blanks, "");
    l->blanks = 0;
}

static void put(struct line *l, enum colour colour, const char *text, int width, int is_right)
{
    int is_coloured = colour != PLAIN && l->look->has_colours;
    int len = (int)strlen(text);
    width = min(width, l->left);
    len = min(len, width);
    if (width <= 0)
        return;
    if (is_right)
        l->blanks += width - len;
    if (len)
        flush_blanks(l);
    if (is_coloured && len)
        fprintf(l->out, "\033[%sm", codes[colour]);
    fprintf(l->out, "%.*s", len, text);
    if (is_coloured && len)
        fputs("\033[0m", l->out);
    if (!is_right)
        l->blanks += width - len;
    l->left -= width;
}

static void gap(struct line *l)
{
    put(l, PLAIN, "", 1, 0);
}

static enum colour heat(int64_t part, int64_t whole)
{
    if (part < 0 || whole <= 0)
        return PLAIN;
    return part >= whole / 100 * 95 ? RED : part >= whole / 100 * 75 ? YELLOW : GREEN;
}

static void put_bar(struct line *l, int width, int64_t part, int64_t whole)
{
    char bar[BAR_MAX + 1];
    if (width <= 0)
        return;
    int inside = width - 2, filled = 0;
    if (part > 0 && whole > 0)
        filled = part >= whole ? inside : (int)((double)part / (double)whole * inside + 0.5);
    put(l, DIM, "[", 1, 0);
    memset(bar, '|', (size_t)filled);
    bar[filled] = '\0';
    put(l, heat(part, whole), bar, filled, 0);
    put(l, PLAIN, "", inside - filled, 0);
    put(l, DIM, "]", 1, 0);
    gap(l);
}

/* At most 6 characters: "1023", "9.5Mi", "79.6Gi". */
static void format_bytes(int64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1000 && unit < 6; unit++)
        value /= 1024;
    if (bytes < 0)
        snprintf(text, size, "?");
    else
        snprintf(text, size, "%.*f%s", unit && value < 99.95 && bytes % (1ll << 10 * unit) ? 1 : 0,
                 value, units[unit]);
}

static void put_memory(struct line *l, const struct alq_top_row *r)
{
    char used[16], limit[16], both[40];
    format_bytes(r->memory_bytes, used, sizeof(used));
    format_bytes(r->memory_limit_bytes, limit, sizeof(limit));
    snprintf(both, sizeof(both), r->memory_limit_bytes > 0 ? "%s/%s" : "%s", used, limit);
    put(l, heat(r->memory_bytes, r->memory_limit_bytes), both, MEMORY_WIDTH, 1);
}

static void put_compute(struct line *l, const struct alq_top_row *r)
{
    char text[32] = "?";
    if (r->compute_pct >= 0 && r->compute_limit_pct > 0)
        snprintf(text, sizeof(text), "%d/%d%%", r->compute_pct, r->compute_limit_pct);
    else if (r->compute_pct >= 0)
        snprintf(text, sizeof(text), "%d%%", r->compute_pct);
    put(l, PLAIN, text, COMPUTE_WIDTH, 1);
}

static void put_history(struct line *l, int width, const struct alq_top_row *r)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char signs[] = " .:-=+*#@";
    if (width > l->left)
        width = l->left;
    int count = min((int)r->history_count, width);
    put(l, PLAIN, "", width - count, 0);
    flush_blanks(l);
    for (unsigned i = r->history_count - (unsigned)count; i < r->history_count; i++) {
        unsigned level = (r->history[i] * 8u + 99) / 100;
        if (l->look->is_utf8)
            fputs(blocks[level], l->out);
        else
            fputc(signs[level], l->out);
    }
    l->left -= count;
}

/* ---- lines ------------------------------------------------------------------------------------
 */

static struct widths widths_of(const struct alq_top_model *m, int columns)
{
    struct widths w = {.name = NAME_MIN};
    int longest = NAME_MIN, note = 0;
    for (size_t i = 0; i < m->count; i++) {
        longest = min(
            longest > (int)strlen(m->rows[i].name) ? longest : (int)strlen(m->rows[i].name), 40);
        note = note > (int)strlen(m->rows[i].note) ? note : (int)strlen(m->rows[i].note);
    }
    int left = columns - NAME_MIN - 1 - MEMORY_WIDTH - 1 - COMPUTE_WIDTH;
    if (left >= 2 * (BAR_MIN + 1)) {
        w.bar = BAR_MIN;
        left -= 2 * (BAR_MIN + 1);
    }
    if (w.bar && left >= COUNT_WIDTH + 1) {
        w.count = COUNT_WIDTH;
        left -= COUNT_WIDTH + 1;
    }
    if (w.count && left >= HISTORY_MIN + 1) {
        w.history = HISTORY_MIN;
        left -= HISTORY_MIN + 1;
    }
    int more = min(left, longest - NAME_MIN);
    more = more > 0 ? more : 0;
    w.name += more;
    left -= more;
    if (w.history && left >= note + 1) {
        w.note = note;
        left -= note + 1;
    }
    if (w.bar) {
        more = min(left / 2, BAR_MAX - BAR_MIN) / (w.history ? 2 : 1);
        w.bar += more;
        left -= 2 * more;
    }
    if (w.history)
        w.history += min(left, HISTORY_MAX - HISTORY_MIN);
    return w;
}

static void end(struct line *l)
{
    fputs(l->look->line_end, l->out);
    l->left = l->look->columns;
    l->blanks = 0;
}

static void put_heading(struct line *l, const struct widths *w, enum alq_top_kind kind)
{
    static const char *const names[] = {"GPU", "SHARE", "PROCESS"};
    static const char *const notes[] = {"PRODUCT", "ID", "SHARE"};
    put(l, BOLD, names[kind], w->name, 0);
    gap(l);
    if (w->bar)
        put(l, PLAIN, "", w->bar + 1, 0);
    put(l, BOLD, "MEMORY", MEMORY_WIDTH, 1);
    gap(l);
    if (w->bar)
        put(l, PLAIN, "", w->bar + 1, 0);
    put(l, BOLD, "COMPUTE", COMPUTE_WIDTH, 1);
    if (w->history) {
        gap(l);
        put(l, BOLD, "HISTORY", w->history, 0);
    }
    if (w->count) {
        gap(l);
        put(l, BOLD, kind == ALQ_TOP_PROCESS ? "" : "PROC", w->count, 1);
    }
    if (w->note) {
        gap(l);
        put(l, BOLD, notes[kind], w->note, 0);
    }
    end(l);
}

static void put_row(struct line *l, const struct widths *w, const struct alq_top_row *r)
{
    char count[16] = "";
    if (r->processes >= 0)
        snprintf(count, sizeof(count), "%d", r->processes);
    put(l, r->is_flawed ? RED : PLAIN, r->name, w->name, 0);
    gap(l);
    put_bar(l, w->bar, r->memory_bytes, r->memory_limit_bytes);
    put_memory(l, r);
    gap(l);
    put_bar(l, w->bar, r->compute_pct, r->compute_limit_pct);
    put_compute(l, r);
    if (w->history) {
        gap(l);
        put_history(l, w->history, r);
    }
    if (w->count) {
        gap(l);
        put(l, PLAIN, count, w->count, 1);
    }
    if (w->note) {
        gap(l);
        put(l, r->is_flawed ? RED : DIM, r->note, w->note, 0);
    }
    end(l);
}

/* ---- the whole --------------------------------------------------------------------------------
 */

/* Lines that stand before the rows that scroll. */
static size_t head_lines(const struct alq_top_model *m)
{
    return 1 + 1 + m->counts[ALQ_TOP_GPU];
}

size_t alq_top_scroll_max(const struct alq_top_model *m, const struct alq_top_look *look)
{
    const size_t rows = m->counts[ALQ_TOP_SHARE] + m->counts[ALQ_TOP_PROCESS];
    const size_t head = head_lines(m) + 2; /* and two headings */
    const size_t room = (size_t)look->rows > head ? (size_t)look->rows - head : 1;
    return look->rows && rows > room ? rows - room : 0;
}

void alq_top_paint(const struct alq_top_model *m, const struct alq_top_look *look, FILE *out)
{
    struct line l = {.look = look, .out = out, .left = look->columns};
    const struct widths w = widths_of(m, look->columns);
    int lines = look->rows ? look->rows : 1 << 30;
    size_t passed = 0;
    put(&l, BOLD, "aliquot top", 11, 0);
    put(&l, PLAIN, "", 2, 0);
    put(&l, look->error ? RED : PLAIN, look->error ? look->error : look->title, look->columns, 0);
    end(&l);
    lines--;
    for (int kind = 0; kind < ALQ_TOP_KINDS; kind++) {
        if (kind == ALQ_TOP_PROCESS && !m->counts[kind])
            break;
        if (lines-- <= 0)
            return;
        put_heading(&l, &w, (enum alq_top_kind)kind);
        for (size_t i = 0; i < m->count; i++) {
            if ((int)m->rows[i].kind != kind)
                continue;
            if (kind != ALQ_TOP_GPU && passed < look->first) {
                passed++;
                continue;
            }
            if (lines-- <= 0)
                return;
            put_row(&l, &w, &m->rows[i]);
        }
    }
}
