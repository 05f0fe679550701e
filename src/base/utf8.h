/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts for protobuf's string fields. Go refuses a whole message for one string that is not UTF-8;
 * an error text may hold anything, and may have been cut within a character. Plain functions.
 */
#ifndef ALQ_BASE_UTF8_H
#define ALQ_BASE_UTF8_H

/* Puts '?' in the place of every byte that is not part of a UTF-8 character. */
void alq_utf8_clean(char *text);

#endif
