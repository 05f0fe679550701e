/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The terminal, see term.h. The sequences are those of ECMA-48 and xterm that every terminal in use
 * knows, so no terminfo is needed.
 */
#include "cli/term.h"

#include <errno.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l\033[2J"
#define LEAVE "\033[0m\033[?25h\033[?1049l"

static struct termios before;
static volatile sig_atomic_t is_open, has_keys;

static const struct {
    const char *text;
    int key;
} sequences[] = {{"\033[A", ALQ_KEY_UP},       {"\033OA", ALQ_KEY_UP},
                 {"\033[B", ALQ_KEY_DOWN},     {"\033OB", ALQ_KEY_DOWN},
                 {"\033[5~", ALQ_KEY_PAGE_UP}, {"\033[6~", ALQ_KEY_PAGE_DOWN}};

static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGABRT, SIGSEGV, SIGBUS};

int alq_term_is_capable(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

int alq_term_has_colours(void)
{
    const char *no = getenv("NO_COLOR");
    return alq_term_is_capable() && !(no && *no);
}

int alq_term_is_utf8(void)
{
    return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

/* These two are called by handlers: write, tcsetattr and nothing else. */
static void enter(void)
{
    struct termios raw = before;
    raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    if (write(STDOUT_FILENO, ENTER, sizeof(ENTER) - 1) < 0)
        return;
    is_open = 1;
}

static void leave(void)
{
    if (!is_open)
        return;
    is_open = 0;
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    if (write(STDOUT_FILENO, LEAVE, sizeof(LEAVE) - 1) < 0)
        return;
}

/* Ends or stops as it would have without us; SA_RESETHAND has put the default back. */
static void on_ending(int number)
{
    leave();
    raise(number);
}

static void handle(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void on_stop(int number);

static void take_back(void)
{
    handle(SIGTSTP, on_stop, (int)(SA_RESETHAND | SA_NODEFER));
    if (!is_open)
        enter();
}

/* raise returns when it goes on, or at once where nobody could let it go on (an orphaned group). */
static void on_stop(int number)
{
    int kept = errno;
    leave();
    raise(number);
    take_back();
    errno = kept;
}

/* After a SIGSTOP, which cannot be seen coming. */
static void on_continue(int number)
{
    int kept = errno;
    (void)number;
    is_open = 0;
    take_back();
    errno = kept;
}

static void on_resize(int number)
{
    (void)number; /* interrupts poll */
}

int alq_term_open(void)
{
    has_keys = isatty(STDIN_FILENO) && !tcgetattr(STDIN_FILENO, &before);
    for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++)
        handle(ending[i], on_ending, (int)(SA_RESETHAND | SA_NODEFER));
    handle(SIGTSTP, on_stop, (int)(SA_RESETHAND | SA_NODEFER));
    handle(SIGCONT, on_continue, 0);
    handle(SIGWINCH, on_resize, 0);
    enter();
    return is_open ? 0 : -1;
}

void alq_term_close(void)
{
    leave();
    handle(SIGCONT, SIG_DFL, 0);
}

void alq_term_size(int *columns, int *rows)
{
    struct winsize size = {0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    *columns = size.ws_col ? size.ws_col : 80;
    *rows = size.ws_row ? size.ws_row : 24;
}

int alq_term_key(int timeout_ms)
{
    char c[8] = "";
    struct pollfd in = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    if (poll(&in, 1, timeout_ms) <= 0)
        return 0;
    if (read(STDIN_FILENO, c, 1) <= 0)
        return in.revents & (POLLHUP | POLLERR) ? -1 : 0;
    if (c[0] != '\033')
        return (unsigned char)c[0];
    if (read(STDIN_FILENO, c + 1, 2) == 2 && (c[2] == '5' || c[2] == '6') &&
        read(STDIN_FILENO, c + 3, 1) < 0)
        return 0;
    for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++)
        if (!strcmp(c, sequences[i].text))
            return sequences[i].key;
    return 0;
}
