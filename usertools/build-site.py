#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The documents as a static site, by Sphinx.

usage: build-site.py [SOURCE] FOLDER

README.rst, CONTRIBUTING.rst, doc/, the README.rst of each folder of lib/, and the API from the
contracts (karst*.h): FOLDER/html/index.html is where to begin.  SOURCE is the tree, by default
the one that this script is in.  Warnings are errors.  Needs python3-sphinx.
Exit status: 0; 1 Sphinx complained; 2 wrong arguments.
"""
import os
import re
import shutil
import subprocess
import sys

CONF = '''
project = 'karst'
author = 'The karst authors'
copyright = '2026, The karst authors'
release = {version!r}
extensions = []
html_theme = 'alabaster'
html_theme_options = {{'description': 'RDMA in user space', 'page_width': '1100px'}}
html_show_sphinx = False
primary_domain = 'c'
c_id_attributes = ['karst_nonnull', 'karst_pure']
'''
# Like "python3 -m sphinx", but without garbage collection, which takes a third of the time and finds little
# in the nodes of all documents.
SPHINX = '''
import gc
import sys
from sphinx.cmd.build import main
gc.disable()
sys.exit(main(sys.argv[1:]))
'''
INDEX = '''
karst {version}
===============

.. toctree::
   :maxdepth: 1
   :caption: To begin

   README
   CONTRIBUTING
   doc/architecture
   doc/glossary

.. toctree::
   :maxdepth: 1
   :caption: Documents
   :glob:

   doc/*

.. toctree::
   :maxdepth: 1
   :caption: Decisions
   :glob:

   doc/adr/*

.. toctree::
   :maxdepth: 1
   :caption: The library, folder by folder
   :glob:

   lib/*

.. toctree::
   :maxdepth: 1
   :caption: API

{api}
'''
# The comment before a declaration, the declaration, and what follows it.
FUNCTION = re.compile(
    r'(?P<doc>/\*\*(?:(?!\*/).)*\*/\n)?(?P<text>^(?!#|\t|typedef|return|extern)[a-z][\w \t\n*]*?'
    r'\**(?P<name>karst_\w+)\((?:[^;{}()]|\([^;{}()]*\))*\))\s*(?:;|\{)',
    re.DOTALL | re.MULTILINE)
TYPE = re.compile(
    r'(?P<doc>/\*\*(?:(?!\*/).)*\*/\n)?^(?P<kind>struct|enum|union) (?P<name>karst_\w+) \{'
    r'(?P<body>.*?)^\}[^;]*;', re.DOTALL | re.MULTILINE)


def title(text, line='='):
    return f'{text}\n{line * len(text)}\n\n'


def prose(comment):
    """The text of a comment as reStructuredText, with markup only for names of parameters."""
    lines = [re.sub(r'^\s*/?\*+/?\s?|\s*\*/\s*$', '', line) for line in comment.splitlines()]
    text = '\n'.join(lines).strip()
    text = re.sub(r'([\\*_`|<>])', r'\\\1', text)
    text = re.sub(r'@(\w+)', lambda m: f'**{m.group(1)}**', text)
    # lists and drawings keep their lines
    blocks = []
    for block in re.split(r'\n\s*\n', text):
        if re.search(r'^\s\s', block, re.MULTILINE):
            blocks.append('\n'.join('| ' + line.replace('\t', '    ') for line in
                                    block.splitlines()))
        else:
            blocks.append(' '.join(block.split()))
    return '\n\n'.join(blocks)


def indent(text):
    return '\n'.join('   ' + line if line else '' for line in text.splitlines())


def signature(text):
    text = re.sub(r'\b(static|inline|extern|karst_\w*inline|__attribute__\(\(.*?\)\)\))\s+', '',
                  text)
    return ' '.join(text.split())


def api_page(path, known):
    """The contract of one header, or None if it declares nothing.  @known: names that have a page
    already; Sphinx allows only one object of a name, and functions take precedence."""
    with open(path, encoding='utf-8') as f:
        text = f.read()
    entries = []
    functions, seen = {m['name'] for m in FUNCTION.finditer(text)}, set()
    for m in TYPE.finditer(text):
        words = (prose(m['doc']) + '\n\n' if m['doc'] else '') + '.. code-block:: c\n\n' + indent(
            f'{m["kind"]} {m["name"]} {{{m["body"]}}};'.expandtabs(4))
        if m['name'] not in functions | known:
            words = f'.. c:{m["kind"]}:: {m["name"]}\n\n' + indent(words)
        entries.append((m.start(), words))
    for m in FUNCTION.finditer(text):
        if m['name'] in seen:  # the other branch of an #if
            continue
        seen.add(m['name'])
        words = prose(m['doc']) if m['doc'] else ''
        if m['name'] not in known:
            words = f'.. c:function:: {signature(m["text"])}\n\n' + indent(words)
        entries.append((m.start(), words))
    if not entries:
        return None
    known |= functions | {m['name'] for m in TYPE.finditer(text)}
    head = re.search(r'\*/\n(/\*.*?\*/)\n', text, re.DOTALL)
    out = title(os.path.basename(path))
    if head:
        out += prose(head.group(1)) + '\n\n'
    return out + '\n\n'.join(text for _, text in sorted(entries)) + '\n'


def put(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)


def gather(source, to):
    """Everything as a tree of .rst."""
    with open(os.path.join(source, 'VERSION'), encoding='utf-8') as f:
        version = f.read().strip()
    for name in ('README.rst', 'CONTRIBUTING.rst'):
        shutil.copy(os.path.join(source, name), to)
    for folder in ('doc', os.path.join('doc', 'adr')):
        os.makedirs(os.path.join(to, folder), exist_ok=True)
        for name in os.listdir(os.path.join(source, folder)):
            if name.endswith('.rst'):
                shutil.copy(os.path.join(source, folder, name), os.path.join(to, folder))
    shutil.copytree(os.path.join(source, 'doc', 'record'), os.path.join(to, 'doc', 'record'),
                    ignore=shutil.ignore_patterns('*.json'))
    names, known = [], set()
    for folder in sorted(os.listdir(os.path.join(source, 'lib'))):
        here = os.path.join(source, 'lib', folder)
        readme = os.path.join(here, 'README.rst')
        if os.path.exists(readme):
            os.makedirs(os.path.join(to, 'lib'), exist_ok=True)
            shutil.copy(readme, os.path.join(to, 'lib', folder + '.rst'))
        if not os.path.isdir(here):
            continue
        for header in sorted(os.listdir(here)):
            if not re.fullmatch(r'karst\w*\.h', header):
                continue
            page = api_page(os.path.join(here, header), known)
            if page is not None:
                put(to, f'api/{header[:-2]}.rst', page)
                names.append(f'   api/{header[:-2]}')
    # headers for programs come first
    names.sort(key=lambda n: (n.strip() not in ('api/karst', 'api/karst_rdmacm'), n))
    put(to, 'index.rst', INDEX.format(version=version, api='\n'.join(names)))
    put(to, 'conf.py', CONF.format(version=version))


def main(argv):
    if len(argv) not in (2, 3) or argv[1].startswith('-'):
        asked = len(argv) > 1 and argv[1] in ('-h', '--help')
        print(__doc__, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    source = argv[1] if len(argv) == 3 else here
    sources, html = (os.path.join(argv[-1], name) for name in ('rst', 'html'))
    for folder in (sources, html):
        shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(sources)
    gather(source, sources)
    return subprocess.run(['/usr/bin/python3', '-c', SPHINX, '-q', '-W', '--keep-going', '-b',
                           'html', sources, html], check=False).returncode


if __name__ == '__main__':
    sys.exit(main(sys.argv))
