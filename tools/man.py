#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/aliquotd.8: the settings as `aliquotd --help` has them, and what a manual page says besides.
Usage: tools/man.py build/src/daemon/aliquotd >docs/aliquotd.8"""

import re
import subprocess
import sys

HEAD = r""".\" SPDX-License-Identifier: Apache-2.0
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

TAIL = r""".TP
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


def escape(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def main():
    text = subprocess.run([sys.argv[1], "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    out = [HEAD]
    for flag, summary, preset in re.findall(r"^  --([a-z-]+) +(.*?)(?: \[(.*)\])?$", text, re.M):
        if flag in ("config", "help"):
            continue
        out.append(f".TP\n.B {escape('--' + flag)}\n{escape(summary)}\n")
        if preset:
            out.append(f".br\nDefault: {escape(preset)}\n")
    out.append(TAIL)
    sys.stdout.write("".join(out))


if __name__ == "__main__":
    main()
