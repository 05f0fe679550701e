#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints docs/share-abi.md: reads the structs of include/aliquot/share.h and asks the compiler for their offsets.

usage: tools/share_abi.py >docs/share-abi.md"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parent.parent
HEADER = REPO / "include/aliquot/share.h"
FILES = [("control", "alq_control", "One page. Written by the daemon alone, mode 0644, mapped read-only in the container."),
         ("usage", "alq_usage_header", "The header, then `section_count` sections of `section_bytes` each. Written by the processes of the "
                                       "containers, mode 0666, preallocated. The daemon reads it into its own memory and trusts nothing in it.")]
FIELD = re.compile(r"(?:struct )?[a-z0-9_ ]+? ([a-z0-9_]+)((?:\[[^\]]*\])*);")


def clean(comment):
    text = re.sub(r"\n\s*\*", " ", comment).strip(" *")
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def parse(source):
    """{struct: (comment before it, [(field, declaration, comment)])} in order of the header."""
    structs = {}
    for match in re.finditer(r"(?:/\*((?:(?!\*/).)*)\*/\s*\n)?((?:#define [^\n]*\n)*)struct (alq_\w+) \{\n(.*?)\n\}", source, re.S):
        fields, pending = [], ""
        for comment, field in re.findall(r"/\*(.*?)\*/|([^;/]+;)", match.group(4), re.S):
            if field:
                parts = FIELD.search(field.strip())
                fields.append([parts.group(1), " ".join(field.split()).rstrip(";"), pending])
                pending = ""
            elif fields and not re.search(r"\n\s*/\*" + re.escape(comment[:40]), "\n" + match.group(4)):
                fields[-1][2] = clean(comment)  # behind the field, on its line
            else:
                pending = clean(comment)  # on lines of its own, before the field
        structs[match.group(3)] = (clean(match.group(1) or ""), fields)
    return structs


def measure(structs):
    """{(struct, field): (offset, bytes)}, and (struct, None): (0, bytes)."""
    lines = []
    for name, (_, fields) in structs.items():
        lines.append(f'printf("{name} - 0 %zu\\n", sizeof(struct {name}));')
        lines += [f'printf("{name} {f} %zu %zu\\n", offsetof(struct {name}, {f}), sizeof(((struct {name} *)0)->{f}));'
                  for f, _, _ in fields]
    program = '#include <stdio.h>\n#include "aliquot/share.h"\nint main(void)\n{\n' + "\n".join(lines) + "\nreturn 0;\n}\n"
    with tempfile.TemporaryDirectory(prefix="alq-abi-") as folder:
        source = pathlib.Path(folder, "abi.c")
        source.write_text(program)
        subprocess.run([*shlex.split(os.environ.get("CC", "gcc")), "-std=gnu17", "-I", REPO / "include", "-o", source.with_suffix(""), source],
                       check=True)
        output = subprocess.run([source.with_suffix("")], check=True, stdout=subprocess.PIPE, text=True).stdout
    sizes = {}
    for line in output.splitlines():
        struct, field, offset, size = line.split()
        sizes[struct, None if field == "-" else field] = (int(offset), int(size))
    return sizes


def main():
    source = HEADER.read_text()
    structs = parse(source)
    sizes = measure(structs)
    version = re.search(r"#define ALQ_SHARE_VERSION (\d+)", source).group(1)
    out = sys.stdout.write
    out(f"""# The files of a share directory, byte by byte

Version {version}. Made by `tools/share_abi.py` from [`include/aliquot/share.h`](../include/aliquot/share.h), which has the rules: who writes
what, and in which memory order. Do not edit: a test compares. Numbers are little endian. Bytes that no row names are padding,
and are zero. A change of an offset is another version; a field put where `reserved` was, reading zero from an older writer, is not.

A share is at `<root>/<claim uid>-<result index>/`, in the container below `/run/aliquot/shares`.
""")
    for file, struct, what in FILES:
        out(f"\n## {file}: `struct {struct}`\n\n{what}\n")
        out(table(struct, structs, sizes))
    rest = [s for s in structs if s not in {f[1] for f in FILES}]
    out("\n## Structures inside\n")
    for struct in rest:
        out(f"\n### `struct {struct}`\n")
        if structs[struct][0]:
            out(f"\n{structs[struct][0]}\n")
        out(table(struct, structs, sizes))


def table(struct, structs, sizes):
    rows = [f"\n{sizes[struct, None][1]} bytes.\n", "| offset | bytes | field | meaning |", "|---:|---:|---|---|"]
    for field, declaration, comment in structs[struct][1]:
        offset, size = sizes[struct, field]
        rows.append(f"| {offset} | {size} | `{declaration}` | {comment} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
