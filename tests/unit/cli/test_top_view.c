/* SPDX-License-Identifier: Apache-2.0 */
/* The table of aliquot top at every width, and of names that would command a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/top_view.h"

static struct alq_top_model model;
static char *text;

static json_t *json(const char *value)
{
    return json_loads(value, 0, NULL);
}

static void update(const char *command)
{
    alq_auto_json json_t *gpus =
        json("{\"gpus\": [{\"uuid\": \"GPU-1\", \"device\": \"hami-gpu-0\", \"product\": \"NVIDIA "
             "H100\","
             " \"memoryTotalBytes\": 85899345920, \"memoryUsedBytes\": 42949672960,"
             " \"utilizationPercent\": 50}]}");
    alq_auto_json json_t *shares =
        json("{\"shares\": [{\"id\": \"u-0\", \"claim\": {\"namespace\": \"a\", \"name\": \"b\"},"
             " \"enforced\": true, \"limits\": {\"memoryBytes\": 4294967296, \"cores\": 30},"
             " \"usage\": {\"countedBytes\": 4294967296, \"overheadBytes\": 0, \"usedPercent\": 30,"
             " \"processes\": 1}}]}");
    alq_auto_json json_t *processes =
        json_pack("{s:[{s:i, s:s, s:s, s:i, s:s}]}", "processes", "pid", 7, "gpu", "GPU-1", "share",
                  "u-0", "usedPercent", 30, "command", command);
    assert_int_equal(alq_top_update(&model, gpus, shares, processes), 0);
}

static char *paint(int columns, int rows, int has_colours)
{
    size_t len;
    free(text);
    text = NULL;
    FILE *out = open_memstream(&text, &len);
    const struct alq_top_look look = {.columns = columns,
                                      .rows = rows,
                                      .has_colours = has_colours,
                                      .title = "title",
                                      .line_end = "\n"};
    alq_top_paint(&model, &look, out);
    fclose(out);
    return text;
}

static int stop(void **state)
{
    (void)state;
    alq_top_clear(&model);
    free(text);
    text = NULL;
    return 0;
}

static void paint_of_any_width_has_no_wider_line(void **state)
{
    (void)state;
    update("python3");
    for (int columns = 1; columns <= 300; columns++) {
        unsigned lines = 0;
        for (const char *line = paint(columns, 0, 0); *line; line = strchr(line, '\n') + 1, lines++)
            assert_true(strcspn(line, "\n") <= (size_t)columns);
        assert_int_equal(lines, 7);
    }
}

static void paint_of_few_rows_has_no_more_lines(void **state)
{
    (void)state;
    update("python3");
    for (int rows = 1; rows <= 10; rows++) {
        int lines = 0;
        for (const char *c = paint(80, rows, 0); *c; c++)
            lines += *c == '\n';
        assert_int_equal(lines, rows < 7 ? rows : 7);
    }
}

static void paint_of_a_full_share_says_so_in_red(void **state)
{
    (void)state;
    update("python3");
    assert_non_null(strstr(paint(100, 0, 1), "\033[31m4Gi/4Gi\033[0m"));
    assert_null(strchr(paint(100, 0, 0), '\033'));
}

static void update_of_a_command_that_commands_the_terminal_is_made_harmless(void **state)
{
    (void)state;
    update("\033[2J\x7f\xc3\xa9");
    assert_null(strchr(paint(100, 0, 0), '\033'));
    assert_non_null(strstr(text, "7 ?[2J???"));
}

static void update_without_a_row_forgets_it(void **state)
{
    (void)state;
    update("python3");
    assert_int_equal(model.count, 3);
    assert_int_equal(alq_top_update(&model, NULL, NULL, NULL), 0);
    assert_int_equal(model.count, 0);
}

static void update_more_often_than_history_is_long_keeps_the_last(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ALQ_TOP_HISTORY + 9; i++)
        update("python3");
    assert_int_equal(model.rows[0].history_count, ALQ_TOP_HISTORY);
    assert_int_equal(model.rows[0].history[ALQ_TOP_HISTORY - 1], 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(paint_of_any_width_has_no_wider_line, stop),
        cmocka_unit_test_teardown(paint_of_few_rows_has_no_more_lines, stop),
        cmocka_unit_test_teardown(paint_of_a_full_share_says_so_in_red, stop),
        cmocka_unit_test_teardown(update_of_a_command_that_commands_the_terminal_is_made_harmless,
                                  stop),
        cmocka_unit_test_teardown(update_without_a_row_forgets_it, stop),
        cmocka_unit_test_teardown(update_more_often_than_history_is_long_keeps_the_last, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
