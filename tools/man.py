#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/aliquotd.8 and docs/aliquot.1: the settings and the commands as `--help` has them, and what a manual page says besides.
Usage: tools/man.py build/src/daemon/aliquotd >docs/aliquotd.8
       tools/man.py build/src/cli/aliquot >docs/aliquot.1"""

import json
import os
import re
import subprocess
import sys

DAEMON_HEAD = r""".\" SPDX-License-Identifier: Apache-2.0
.\" Made by tools/man.py; a test holds it against aliquotd \-\-help.
.TH ALIQUOTD 8
.SH NAME
aliquotd \- shares of NVIDIA GPUs for the containers of a Kubernetes node
.SH SYNOPSIS
.B aliquotd
.RB [ \-\-config
.IR FILE ]
.RI [ flags ]
.SH DESCRIPTION
.B aliquotd
is a kubelet plugin for Dynamic Resource Allocation. It publishes the node's GPUs as ResourceSlices, prepares the claims of pods, and
injects each share (bytes of memory, percent of compute) into containers through CDI together with the library that enforces it.
.SH SETTINGS
Each flag
.BI \-\-some\-name
is also the key
.B someName
of the YAML file that
.B \-\-config
(or
.BR ALIQUOT_CONFIG )
names, and the variable
.BR ALIQUOT_SOME_NAME .
A flag goes before the environment, that before the file, the file before the default. What is not known, or cannot be read, is an error.
Two lists exist in the file only:
.B extraMounts
and
.BR extraEnv .
Sizes are Kubernetes quantities: 256Mi, 1.5G, bytes.
"""

DAEMON_TAIL = r""".TP
.BR \-\-uninstall " [" =stay ]
takes away what aliquotd keeps on this host instead of serving: records, share directories, CDI specs, installed libraries, sockets. Refused while an
aliquotd runs, a claim is prepared or a process uses a share. With
.B stay
it then waits to be ended, for a DaemonSet that would only start it again.
.TP
.BR \-\-help ", " \-\-version
.SH SIGNALS
.TP
.B SIGHUP
reads all settings again. What can change while it runs is in force at once; what cannot is named in the log and by
.BR "aliquot doctor" .
A file that is no good changes nothing.
.TP
.BR SIGTERM ", " SIGINT
ends: the kubelet is told first, open calls and requests are answered. A second one ends at once.
.SH EXIT STATUS
.TP
.B 0
ended by a signal
.TP
.B 1
it could not start; the last line of the log says why
.TP
.B 2
the settings were not understood
.SH FILES
.TP
.I /run/aliquot/aliquotd.sock
the admin socket, for
.BR aliquot (1)
and others
.TP
.I /run/aliquot/shares
a directory for each share, on tmpfs
.TP
.I /var/lib/aliquot
records of prepared claims, and the names of devices
.SH CAPABILITIES
As root it needs CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_MKNOD and CAP_SYS_PTRACE, drops all others at its start, and gains none later
(no_new_privs).
"""

TOOL_HEAD = r""".\" SPDX-License-Identifier: Apache-2.0
.\" Made by tools/man.py; a test holds it against aliquot \-\-help.
.TH ALIQUOT 1
.SH NAME
aliquot \- shares of NVIDIA GPUs, seen and changed
.SH SYNOPSIS
.B aliquot
.I command
.RI [ arguments ]
.SH DESCRIPTION
.B aliquot
asks
.BR aliquotd (8)
over its admin socket what the shares of this machine's GPUs are, what they use and what is wrong, and has it change their limits.
It writes no limit itself. Colours are used on a terminal only, and not where
.B NO_COLOR
is set.
"""

TOOL_TAIL = r""".SH EXIT STATUS
.TP
.B 0
done
.TP
.B 1
it was understood, but could not be done; one line on standard error says why
.TP
.B 2
it was not understood
.SH ENVIRONMENT
.TP
.B ALIQUOT_SOCKET
the admin socket, where
.B \-\-socket
is not given
.TP
.B NO_COLOR
when set and not empty: no colours
.SH FILES
.TP
.I /run/aliquot/aliquotd.sock
the admin socket: root may change limits, the group that aliquotd's
.B \-\-admin\-group
names may read
.SH SEE ALSO
.BR aliquotd (8)
"""


def escape(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def help_of(program, *args):
    return subprocess.run([program, "--help", *args], check=True, stdout=subprocess.PIPE, text=True).stdout


def daemon_page(program):
    out = [DAEMON_HEAD]
    for flag, summary, preset in re.findall(r"^  --([a-z-]+) +(.*?)(?: \[(.*)\])?$", help_of(program), re.M):
        if flag in ("config", "help"):
            continue
        out.append(f".TP\n.B {escape('--' + flag)}\n{escape(summary)}\n")
        if preset:
            out.append(f".br\nDefault: {escape(preset)}\n")
    return "".join(out) + DAEMON_TAIL


def options(rows):
    for row in rows:
        names = [f"-{row['letter']}"] if "letter" in row else []
        names.append(f"--{row['name']}")
        value = f" \\fI{escape(row['value'])}\\fR" if "value" in row else ""
        yield f".TP\n\\fB{escape(', '.join(names))}\\fR{value}\n{escape(row['summary'])}\n"


def tool_page(program):
    said = json.loads(help_of(program, "--output", "json"))
    out = [TOOL_HEAD, ".SH OPTIONS OF ALL COMMANDS\n", *options(said["options"]), ".SH COMMANDS\n"]
    for command in said["commands"]:
        out.append(f".SS aliquot {escape(command['name'])} {escape(command['arguments'])}\n".replace(" \n", "\n"))
        out.append(escape(command["help"]))
        out.extend(options(command["options"]))
        for example in command["examples"]:
            out.append(f".PP\n{escape(example['what'])[:1].upper()}{escape(example['what'])[1:]}:\n.PP\n.EX\n    {escape(example['command'])}\n.EE\n")
    return "".join(out) + TOOL_TAIL


def main():
    page = daemon_page if os.path.basename(sys.argv[1]) == "aliquotd" else tool_page
    sys.stdout.write(page(sys.argv[1]))


if __name__ == "__main__":
    main()
