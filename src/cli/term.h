/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The terminal while a program has all of it: another screen, keys without Enter, no cursor. It is
 * given back on close, at exit and by every signal that ends or stops the process. One thread; one
 * at a time.
 */
#ifndef ALQ_CLI_TERM_H
#define ALQ_CLI_TERM_H

/* Whether stdout is a terminal that can be painted on. */
int alq_term_is_capable(void);
/* Whether colours are wanted: such a terminal, and no NO_COLOR (https://no-color.org). */
int alq_term_has_colours(void);
/* Whether the locale's characters are UTF-8; setlocale first. */
int alq_term_is_utf8(void);

/* 0, or -1 with errno. */
int alq_term_open(void);
void alq_term_close(void);

/* Columns and rows; 80 and 24 where they cannot be told. */
void alq_term_size(int *columns, int *rows);

/* The next key, waiting at most so long; a letter, ALQ_KEY_*, 0 when the time is over or the size
 * has changed, -1 when there is no more input. */
enum { ALQ_KEY_UP = 256, ALQ_KEY_DOWN, ALQ_KEY_PAGE_UP, ALQ_KEY_PAGE_DOWN };
int alq_term_key(int timeout_ms);

#endif
