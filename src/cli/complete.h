/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a shell offers for the word under the cursor. The scripts in src/cli/completion/ call
 * `aliquot __complete WORD...` and know nothing of the commands themselves.
 */
#ifndef ALQ_CLI_COMPLETE_H
#define ALQ_CLI_COMPLETE_H

/*
 * words: what follows "aliquot" on the line, the last one under the cursor, perhaps empty. Writes a
 * line for each word that fits, "word", or "word", a tab and what it is; or one line ":files" or
 * ":program" where the shell knows better. Says nothing when there is nothing to offer. 0.
 */
int alq_complete_print(const char *socket_path, int count, char **words);

#endif
