#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Write a C table of every enumerator, structure size and member offset that a header of ours declares.

Compiled twice by test_abi: against our header and against NVIDIA's, so that the two can be compared number by number.
Usage: gen_abi_facts.py TABLE_NAME HEADER... > table.inc
"""
import re
import sys

# Ours alone, or gone from NVIDIA's newest header.
OURS_ALONE = {'nvmlPciInfo_v1_t', 'nvmlPciInfo_v2_t', 'NVML_NO_INSTANCE_ID'}


def main():
    table, headers = sys.argv[1], sys.argv[2:]
    text = ''
    for header in headers:
        with open(header, encoding='utf-8') as f:
            text += f.read()
    text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    rows = []
    for name in re.findall(r'^    X\((\w+), -?\w+\)', text, re.M):
        rows.append((name, f'(long long){name}'))
    for body, _ in re.findall(r'typedef enum \w*\s*\{(.*?)\}\s*(\w+);', text, re.S):
        for name in re.findall(r'^\s*(\w+) = ', body, re.M):
            if name.isupper() or '_' in name:
                rows.append((name, f'(long long){name}'))
    for body, name in re.findall(r'typedef (?:struct|union) \w*\s*\{\n(.*?)\n\}\s*(\w+);', text, re.S):
        if name in OURS_ALONE:
            continue
        rows.append((f'sizeof({name})', f'(long long)sizeof({name})'))
        for line in re.findall(r'^    (\S.*);$', body, re.M):
            if '{' in line or '}' in line or '(' in line:
                continue
            for member in line.split(','):
                member = re.findall(r'(\w+)(?:\[\w+\])*$', member.strip())
                if member and not member[0].startswith('reserved'):
                    rows.append((f'{name}.{member[0]}', f'(long long)__builtin_offsetof({name}, {member[0]})'))
    seen = set()
    print(f'const struct abi_fact {table}[] = {{')
    for name, expr in rows:
        if name not in seen and name != 'type':
            seen.add(name)
            print(f'    {{"{name}", {expr}}},')
    print('    {0, 0},\n};')


if __name__ == '__main__':
    main()
