#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""config/karst.conf and the list of keys in doc/man/karst.conf.5, from app/karstd/conf_keys.def.

  karst-conf.py --print    prints the configuration file
  karst-conf.py --write    writes both
  karst-conf.py --check    TAP: both are current
"""
import os
import re
import sys
import textwrap

import generated_files

TABLE = os.path.join('app', 'karstd', 'conf_keys.def')
CONF = os.path.join('config', 'karst.conf')
MAN = os.path.join('doc', 'man', 'karst.conf.5')
BEGIN = '.\\" Keys, written by usertools/karst-conf.py --write; do not edit.\n'
END = '.\\" End of keys.\n'
FIELDS = {
    'SECTION': ['section', 'reload', 'what'],
    'NUM': ['section', 'key', 'type', 'def', 'least', 'most', 'unit', 'what'],
    'WORD': ['section', 'key', 'def', 'words', 'what'],
    'TEXT': ['section', 'key', 'type', 'def', 'form', 'what'],
}
TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|([A-Za-z0-9_]+)|([(),])|\s+')
HEAD = """# SPDX-License-Identifier: BSD-3-Clause
# karst.conf: what karstd(8) is to do.  See karst.conf(5).
#
# Every key is here with its default, which holds when the key is left out.
# "karstd --check --config FILE" says what is wrong with a file.
"""
# Example names and values; they are commented out in the file, so that it is valid as shipped.
SAMPLE = {'port': 'port wire', 'limits': 'limits'}
SAMPLE_VALUES = {('port', 'device'): 'eth0', ('port', 'addresses'): '192.0.2.1/24, 2001:db8::1/64'}


def rows(root):
    """[(kind, {field: text})] in the order of the table."""
    with open(os.path.join(root, TABLE), encoding='utf-8') as f:
        text = re.sub(r'/\*.*?\*/', '', f.read(), flags=re.DOTALL)
    found = []
    for match in re.finditer(r'^KARSTD_(\w+)\(', text, flags=re.MULTILINE):
        fields, at = [None], match.end()
        while True:
            token = TOKEN.match(text, at)
            if not token:
                raise SystemExit(f'karst-conf.py: {TABLE}: cannot read: {text[at:at + 40]!r}')
            at = token.end()
            string, word, mark = token.groups()
            if mark == ')':
                break
            if mark == ',':
                fields.append(None)
            elif string is not None:
                fields[-1] = (fields[-1] or '') + string.replace('\\"', '"')
            elif word is not None:
                fields[-1] = word
        names = FIELDS[match.group(1)]
        if len(names) != len(fields):
            raise SystemExit(f'karst-conf.py: {TABLE}: {len(fields)} fields: {fields}')
        found.append((match.group(1), dict(zip(names, fields))))
    return found


def number(text, kind):
    value = int(text)
    suffix = ''
    if kind == 'BYTES':
        for suffix in ('', 'K', 'M', 'G', 'T'):
            if value < 1024 or value % 1024 or suffix == 'T':
                break
            value //= 1024
    return f'{value}{suffix}'


def allowed(kind, row):
    if kind == 'NUM':
        text = f'{number(row["least"], row["type"])} to {number(row["most"], row["type"])} ' \
               f'({row["unit"]})'
        return text + (', or auto' if row['def'] == 'auto' else '')
    if kind == 'WORD':
        words = row['words'].split('|')
        return ', '.join(words[:-1]) + ' or ' + words[-1]
    return row['form']


def comment(text):
    return ['# ' + line for line in textwrap.wrap(text, 96)]


def render_conf(table):
    out = HEAD.splitlines()
    commented = False
    for kind, row in table:
        section = row['section']
        if kind == 'SECTION':
            # The port section is only an example.
            commented = section == 'port'
            out += ['', ''] + comment(row['what'])
            out += [('#' if commented else '') + f'[{SAMPLE.get(section, section)}]']
            continue
        value = SAMPLE_VALUES.get((section, row['key']), row['def'])
        out += [''] + comment(row['what']) + comment('Allowed: ' + allowed(kind, row) + '.')
        out += [f'#{row["key"]} = {value}'.rstrip()]
    return '\n'.join(out) + '\n'


def roff(text):
    return text.replace('\\', '\\e').replace('-', '\\-')


def sentences(text):
    """One sentence per line, and no line that roff would take for a request."""
    lines = re.split(r'(?<=[.;])\s+', text)
    return ['\\&' + roff(line) if line[:1] in ".'" else roff(line) for line in lines]


def render_man(table):
    out = []
    for kind, row in table:
        if kind == 'SECTION':
            if out:
                out.append('.El')
            name = {'port': 'port NAME'}.get(row['section'], row['section'])
            out += [f'.Ss [{name}]'] + sentences(row['what'])
            told = 'SIGHUP' in row['what']  # the section's own text says what SIGHUP does
            if row['reload'] == 'RESTART':
                out.append(('Other changes' if told else 'Changes') +
                           ' take effect when the daemon is started again.')
            elif not told:
                out.append('SIGHUP applies changes.')
            out.append('.Bl -tag -width Ds')
            continue
        out.append(f'.It Cm {row["key"]}')
        out += sentences(row['what'])
        out += sentences('Allowed: ' + allowed(kind, row) + '.')
        out.append(f'Default: {roff(row["def"])}.' if row['def'] else 'No default.')
    return '\n'.join(out + ['.El']) + '\n'


def with_keys(page, keys):
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:begin] + keys + page[end:]


def read(root, path):
    with open(os.path.join(root, path), encoding='utf-8') as f:
        return f.read()


def main(argv):
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
    if argv[1:] not in (['--print'], ['--write'], ['--check']):
        print(__doc__, file=sys.stderr)
        return 2
    table = rows(root)
    conf = render_conf(table)
    if argv[1] == '--print':
        print(conf, end='')
        return 0
    files = {CONF: conf, MAN: with_keys(read(root, MAN), render_man(table))}
    if argv[1] == '--check':
        return generated_files.check(root, files)
    generated_files.write(root, files)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
