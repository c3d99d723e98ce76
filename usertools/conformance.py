#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Which code and which tests stand for each numbered rule of doc/protocol.rst.

  conformance.py           prints the table as reStructuredText
  conformance.py --write   writes it to doc/conformance.rst
  conformance.py --check   TAP: the file is current, every citation names a rule that exists,
                           every rule is covered by code and by a test, each kind of test has
                           cited it or says why not; the differences that test/replay allows are
                           explained in doc/differences.rst

A citation is a rule's number in a comment or a string: "(W1, W9)", "(R3..R6)", "(W1 to W6)",
"by rule U4".  It counts for the function, table or declaration that it stands in or in front of;
in the comment that opens a file, for the file.  In a test the name counts too:
Test(responder, r5_duplicate_atomic) cites R5.  In test/interop/cases_*.py, and in the scripts of
test/interop/peer, a citation counts for the case that it stands in.  A mutant (lib/qp/qp_mutant.h)
stands for the simulator, which must catch it.

The numbers of caches and the like (L1, L2, L3) count as rules only in parentheses or after
"rule", and so does any citation of a rule L.
"""
import os
import re
import sys

# Rules of parts that do not exist yet.  Delete a line when its part is added: the check then
# requires code and a test for it.
NOT_YET = {}
# Partly there: what is missing.
PARTLY = {}

# Kinds of tests: columns of the table.  The first one is for tests of no other kind.
KINDS = (
    ('unit', 'unit tests and other suites', ()),
    ('sim', 'simulator', ('test/sim/', 'test/model/')),
    ('captures', 'captures and replay', ('test/captures/', 'test/replay/')),
    ('interop', 'Linux guests', ('test/interop/',)),
)
MUTANTS = os.path.join('lib', 'qp', 'qp_mutant.h')

SELECTIVE = {f'X{i}': 'Linux does not repeat selectively' for i in (*range(1, 11), 12, 13)}
MIGRATION = {f'G{i}': 'Linux soft-RoCE has no path migration' for i in range(1, 7)}
# Why a kind of test does not cover a rule.
WHY = {
    'sim': {
        'W8': 'frames that only karst-dump reads',
        'U4': 'a packet is copied to the members of a group above the simulated core',
        'W11': 'its frames go one by one; test/drivers has trains',
        'S1': 'the option belongs to those who open TCP connections',
        'S19': 'its peers of SMC-R are honest',
    },
    'captures': {
        'C3': 'no captured peer says anything by it, and karst then does not, to the bit',
        'C4': 'no captured peer has two paths',
        'Q11': 'what was captured does not probe, as Linux does not',
        'Q12': 'likewise, and no captured window was full',
        'Q13': 'what was captured does not divide WRITEs, as Linux does not',
        'W9': 'honest peers send nothing that has to be dropped',
        'S1': 'the option belongs to those who open TCP connections',
        'S11': 'no capture has a peer that has lost its group',
        'S19': 'honest peers of SMC-R send nothing else',
        'P2': 'no peer had so many packets outstanding',
        'Q9': 'Linux always says "not limited" (L1)',
        'R14': 'a wire does not show the order in memory',
        'U3': 'Linux soft-RoCE has no XRC (L6)',
        'E2': 'Linux sends no CNP (L6)',
        'E3': 'Linux sends no CNP (L6)',
        'E4': 'Linux sends no CNP (L6)',
        'E6': 'no peer was paced',
        'E7': 'no peer was seen to do that',
        'E5': 'Linux sends no CNP (L6)',
        'W11': 'it is about what karst sends; peers choose theirs (L1)',
        **SELECTIVE,
        **MIGRATION,
    },
    'interop': {
        'W8': 'guests are joined by Ethernet',
        'C4': 'no program of librdmacm can ask for it',
        'P2': 'no program has so many packets outstanding',
        'Q9': 'Linux always says "not limited" (L1)',
        'Q13': 'the other machine sees short WRITEs',
        'R14': 'the other machine does not see the order in memory',
        'R15': 'Linux 6.12 seals FLUSH wrongly and drops right ones (L7)',
        'U3': 'Linux soft-RoCE has no XRC (L6)',
        'E1': 'Linux answers no CE mark (L6)',
        'E2': 'Linux sends no CNP (L6)',
        'E3': 'Linux answers no CE mark (L6)',
        'E6': 'the other machine does not see what was held back',
        'E7': 'the other machine does not see what was held back',
        'E4': 'Linux answers no CE mark (L6)',
        'E5': 'Linux sends no CNP (L6)',
        **SELECTIVE,
        **MIGRATION,
    },
}
# Cases are still being written; a rule without one says so.
WHY_ELSE = {'interop': 'no case is about it yet'}

CODE_DIRS = ('lib', 'app', 'drivers')
TEST_DIRS = ('test',)
# Tests of the project's tools, not of the protocol: rules in them are examples.
NOT_READ = ('corpus', 'layering', 'format', 'docs', 'tools', '__pycache__')
SUFFIXES = ('.c', '.h', '.def', '.py')
OUTPUT = os.path.join('doc', 'conformance.rst')

RULE_LINE = re.compile(r'^\*\*([WPQRUCEXGSL]\d+)\b\s*([^*]*)\*\*\s*(.*)$')
# The L rules are facts about peers: cited where they matter, not required.
OPTIONAL = 'L'
LANGUAGES = ('C11', 'C17', 'C99')
# A file that describes rules and implements none: a citation there alone does not cover a rule.
NO_PROOF = os.path.join('lib', 'base', 'karst_drop.def')
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
PY_COMMENT = re.compile(r'#[^\n]*|""".*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
NUMBER = r'[WPQRUCEXGSL]\d{1,2}'
CITE = re.compile(rf'\b({NUMBER})\b(?:\s*(?:\.\.|-|to)\s*({NUMBER})\b)?')
TEST_NAME = re.compile(r'^(?:Test\(|ParameterizedTest\(.*,)\s*(\w+),\s*(\w+)\s*[,)]',
                       re.MULTILINE)
NAME_CITE = re.compile(r'(?<![a-z0-9])([wpqrucexgs]\d{1,2})(?![a-z0-9])')
DEFINED = re.compile(r'^(?:static_assert\()?(\w+)\(')
TYPE = re.compile(r'^(?:struct|enum|union)\s+(\w+)\s*\{')
MACRO = re.compile(r'^#define\s+(\w+)')
VARIABLE = re.compile(r'^(?:static\s+)?(?:const\s+)?[\w\s*]*?(\w+)(?:\[[^]]*\])*\s*=')
STRING = r"""f?(?:'([^'\n]+)'|"([^"\n]+)")"""
CASE = re.compile(rf'\b\w+\(\s*{STRING}(?:,\s*{STRING})?')
MUTANT_ROW = re.compile(r'KARST_MUTANT_(\w+),[^\n]*')
RULE_LIST = re.compile(rf'{NUMBER}(?: {NUMBER})*$')
DIFFERENCE = re.compile(r'^\*\*(D\d+)\b', re.MULTILINE)
TABLE_ROW = re.compile(r'^KARST_\w+\((\w+)')
PYTHON_DEF = re.compile(r'^(?:def|class)\s+(\w+)')


def read(path):
    with open(path, encoding='utf-8', errors='replace') as f:
        return f.read()


def read_rules(root):
    """{number: title}, in the order of the document."""
    rules = {}
    for line in read(os.path.join(root, 'doc', 'protocol.rst')).splitlines():
        match = RULE_LINE.match(line)
        if match:
            number, title, rest = match.groups()
            rules[number] = (title.strip(' .,:') or first_words(rest))
    return rules


def first_words(text, most=60):
    text = re.split(r'[:.;](?:\s|$)', text, maxsplit=1)[0]
    if len(text) > most:
        text = text[:most].rsplit(' ', 1)[0] + ' ...'
    return text


def expand(first, last):
    """W1, W6 -> W1..W6; numbers of two letters are no range."""
    if not last:
        return [first]
    if first[0] != last[0]:
        return [first, last]
    return [first[0] + str(n) for n in range(int(first[1:]), int(last[1:]) + 1)]


def in_parentheses(text, at):
    return text.rfind('(', 0, at) > text.rfind(')', 0, at)


def citations(comment):
    """(offset, rule) of each rule that a comment or string cites."""
    for match in CITE.finditer(comment):
        before = comment[max(0, match.start() - 8):match.start()]
        if match.group(1)[0] == OPTIONAL and not (
                in_parentheses(comment, match.start()) or re.search(r'rules?\s+$', before)):
            continue
        for rule in expand(match.group(1), match.group(2)):
            if rule not in LANGUAGES:
                yield match.start(), rule


class Source:
    """A file in which each line is assigned to a function, a type, a table row or the file."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.cases = self.case_names(path, text)
        lines = text.splitlines()
        self.owner = self.python_owners(lines) if path.endswith('.py') else self.c_owners(lines)

    @staticmethod
    def python_owners(lines):
        owners, current = [], None
        for line in lines:
            match = PYTHON_DEF.match(line)
            if match:
                current = match.group(1)
            elif line and not line[0].isspace() and line[0] not in '#)]}':
                current = None
            owners.append(current)
        return owners

    @staticmethod
    def defines(line):
        """The name that a line at the left margin introduces, if any."""
        for pattern in (TABLE_ROW, TYPE, MACRO):
            match = pattern.match(line)
            if match:
                return match.group(1)
        match = DEFINED.match(line)
        if match and match.group(1) in ('Test', 'ParameterizedTest', 'TheoryDataPoints'):
            return None
        if match:
            return match.group(1)
        match = re.match(r'^[\w][\w\s*]*?\b(\w+)\(', line)
        if match:
            return match.group(1)
        match = VARIABLE.match(line)
        return match.group(1) if match else None

    @classmethod
    def c_owners(cls, lines):
        """A definition owns its lines, and the comment right in front of it."""
        owners = [None] * len(lines)
        number = 0
        while number < len(lines):
            line = lines[number]
            name = None if not line or line[0].isspace() or line[0] in '/*{}' else (
                cls.test_name(line) or cls.defines(line))
            if name is None:
                number += 1
                continue
            end = cls.end_of(lines, number)
            for i in range(cls.start_of(lines, number), end + 1):
                owners[i] = name
            number = end + 1
        return owners

    @staticmethod
    def test_name(line):
        match = TEST_NAME.match(line)
        return match.group(2) if match else None

    @staticmethod
    def start_of(lines, number):
        """Up over the return type and the comment that stands right in front."""
        start = number
        while start > 0 and re.match(r'^[\w][\w\s*]*$', lines[start - 1]):
            start -= 1
        if start > 0 and lines[start - 1].rstrip().endswith('*/'):
            at = start - 1
            while at > 0 and '/*' not in lines[at]:
                at -= 1
            if at > 0 and 'SPDX' not in lines[at]:
                start = at
        return start

    @staticmethod
    def end_of(lines, number):
        """The closing brace at the margin, or the line that ends a declaration or macro."""
        if lines[number].startswith('#'):
            while lines[number].endswith('\\') and number + 1 < len(lines):
                number += 1
            return number
        for at in range(number, len(lines)):
            line = lines[at]
            if at > number and line.startswith('}'):
                return at
            if '{' not in ''.join(lines[number:at + 1]) and line.rstrip().endswith((';', ')')):
                if line.rstrip().endswith(';') or not (
                        at + 1 < len(lines) and lines[at + 1].startswith('{')):
                    return at
            if at == number and '{' in line and line.count('{') == line.count('}'):
                return at
        return len(lines) - 1

    def cited(self):
        """(rule, owner or None) of each citation."""
        pattern = PY_COMMENT if self.path.endswith('.py') else COMMENT
        for comment in pattern.finditer(self.text):
            for offset, rule in citations(comment.group(0)):
                yield rule, self.owner_at(comment.start() + offset)
        for match in TEST_NAME.finditer(self.text):
            for rule in NAME_CITE.findall(' '.join(match.groups()).replace('_', ' ').lower()):
                yield rule.upper(), self.owner_at(match.start(2))

    @staticmethod
    def case_names(path, text):
        """(offset, name) of each case in a file of cases: the first words of a call, or the second
        if the first are the rules."""
        if not re.match(r'cases_|scripts\.py', os.path.basename(path)):
            return []
        cases = []
        for match in CASE.finditer(text):
            first, second = match.group(1) or match.group(2), match.group(3) or match.group(4)
            cases.append((match.start(), second if second and RULE_LIST.match(first) else first))
        return cases

    def owner_at(self, offset):
        for start, name in reversed(self.cases):
            if start < offset:
                return name
        line = self.text.count('\n', 0, offset)
        return self.owner[line] if line < len(self.owner) else None


def sources(root, tops):
    for top in tops:
        for folder, dirs, names in os.walk(os.path.join(root, top)):
            dirs[:] = sorted(d for d in dirs if d not in NOT_READ)
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    path = os.path.join(folder, name)
                    yield Source(os.path.relpath(path, root), read(path))


def mutants(root):
    """{rule: names} of the deliberate faults that the simulator must catch."""
    found = {}
    for match in MUTANT_ROW.finditer(read(os.path.join(root, MUTANTS))):
        for _, rule in citations(match.group(0)):
            found.setdefault(rule, []).append(match.group(1).lower().replace('_', '-'))
    return found


def kind_of(path):
    for kind, _, folders in KINDS:
        if path.startswith(folders or ('/',)):
            return kind
    return KINDS[0][0]


def of_kind(found, kind):
    """The part of {file: [names]} that is of a kind of test."""
    return {path: names for path, names in (found or {}).items() if kind_of(path) == kind}


def why(rule, kind):
    """Why a kind of test does not cover a rule; None: there is no reason."""
    if rule in NOT_YET or rule[0] == OPTIONAL:
        return '--'
    return WHY.get(kind, {}).get(rule) or WHY_ELSE.get(kind)


def collect(root, tops):
    """{rule: {file: [names]}} and the citations of unknown rules."""
    found = {}
    for source in sources(root, tops):
        for rule, owner in source.cited():
            if source.path == MUTANTS:
                continue
            names = found.setdefault(rule, {}).setdefault(source.path, [])
            if owner and owner not in names:
                names.append(owner)
    return found


def collect_tests(root):
    """Like collect(), for the tests; mutants count as tests of the simulator."""
    found = collect(root, TEST_DIRS)
    for rule, names in mutants(root).items():
        found.setdefault(rule, {})['test/sim/mutants.py'] = names
    return found


def covered(found):
    return any(path != NO_PROOF for path in found or ())


def status(rule, code, test):
    if rule in NOT_YET:
        return 'not yet: ' + NOT_YET[rule]
    if rule[0] == OPTIONAL:
        return 'observed'
    if covered(code) and test:
        return PARTLY.get(rule, 'implemented')
    return 'no test' if covered(code) else 'no code'


def places(found, most_names=6):
    """Files with the functions in them, for a cell of the table."""
    lines = []
    for path, names in sorted(found.items()):
        shown = ', '.join(f'``{name}``' for name in names[:most_names])
        if len(names) > most_names:
            shown += f' and {len(names) - most_names} more'
        lines.append(f'| {path}' + (f': {shown}' if shown else ''))
    return lines or ['']


def cell(first, lines):
    """A cell of a list-table; @first is its bullet."""
    out = []
    for number, line in enumerate(lines):
        out.append((first if number == 0 else '       ') + line)
    return [line.rstrip() for line in out]


def render(rules, code, test):
    out = [
        '.. SPDX-License-Identifier: BSD-3-Clause',
        '.. Written by usertools/conformance.py --write; do not edit.',
        '',
        '===========================================',
        'Conformance: rules, where they are, what tests them',
        '===========================================',
        '',
        'The table has each numbered rule of protocol.rst, the code that implements it and the',
        'tests that check it, by kind.  It is made from the rules that comments, drop reasons,',
        'test names, mutants and cases cite.  Where a kind of test does not cover a rule, the cell',
        'has the reason.  "Captures and replay" are frames of real Linux peers that are parsed and',
        'replayed to karst (differences.rst lists where karst differs); "Linux guests" are tests',
        'with Linux kernels as peers.  Rules with the status "not yet" belong to parts that do not',
        'exist.  Rules L are facts about Linux peers, cited where they matter.',
        '',
    ]
    bar = '=' * len(out[4])
    out[3] = out[5] = bar
    groups = {}
    for rule in rules:
        groups.setdefault(rule[0], []).append(rule)
    for group in groups.values():
        out += ['.. list-table::', '   :header-rows: 1', '   :widths: 5 14 9 18 18 12 12 12', '',
                '   * - rule', '     - about', '     - status', '     - code']
        out += [f'     - {title}' for _, title, _ in KINDS]
        for rule in group:
            out += cell('   * - ', [rule])
            out += cell('     - ', [rules[rule]])
            out += cell('     - ', [status(rule, code.get(rule), test.get(rule))])
            out += cell('     - ', places(code.get(rule, {})))
            for kind, _, _ in KINDS:
                shown = of_kind(test.get(rule), kind)
                out += cell('     - ', places(shown) if shown else [why(rule, kind) or ''])
        out.append('')
    return '\n'.join(out)


def holes(rules, test, kind):
    """The errors in the cells of one kind of test."""
    found = []
    for rule in rules:
        shown = of_kind(test.get(rule), kind)
        if not shown and why(rule, kind) is None:
            found.append(f'{rule}: no test cites it, and WHY has no reason')
        # a reason only counts while a rule has no case
        if shown and rule in WHY.get(kind, {}) and kind not in WHY_ELSE:
            found.append(f'{rule}: delete its reason from WHY, {sorted(shown)[0]} cites it')
    return found


def unexplained(root):
    """Differences that are allowed, but have no paragraph in doc/differences.rst."""
    rows = read(os.path.join(root, 'test', 'replay', 'differences.tsv')).splitlines()
    allowed = {row.split('\t')[-1] for row in rows if row and row[0] != '#'}
    paragraphs = set(DIFFERENCE.findall(read(os.path.join(root, 'doc', 'differences.rst'))))
    return [f'{number}: doc/differences.rst has no such paragraph'
            for number in sorted(allowed - paragraphs)]


def check(root, rules, code, test, text):
    """TAP: whether the table is current, complete and true."""
    results = []
    path = os.path.join(root, OUTPUT)
    current = os.path.exists(path) and read(path) == text
    results.append((f'{OUTPUT} is current', [] if current else
                    ['run usertools/conformance.py --write and commit the result']))
    unknown = [f'{rule}: cited by {path}' for found in (code, test) for rule in sorted(found)
               if rule not in rules for path in found[rule]]
    results.append(('every citation names a rule', unknown))
    early = [f'{rule} is marked "not yet" but has code and a test: delete it from NOT_YET'
             for rule in NOT_YET if covered(code.get(rule)) and test.get(rule)]
    results.append(('what is marked "not yet" is not there', early))
    for letter in 'WPQRUCE':
        wanted = [r for r in rules if r[0] == letter and r not in NOT_YET]
        bad = [f'{rule}: {status(rule, code.get(rule), test.get(rule))}' for rule in wanted
               if not (covered(code.get(rule)) and test.get(rule))]
        results.append((f'rules {letter} have code and a test', bad))
    for kind, title, _ in KINDS:
        results.append((f'{title}: no hole without a reason, no reason without a hole',
                        holes(rules, test, kind)))
    results.append(('the differences of test/replay are explained', unexplained(root)))
    print(f'1..{len(results)}')
    for number, (name, problems) in enumerate(results, 1):
        print(f'{"not ok" if problems else "ok"} {number} - {name}')
        for problem in problems:
            print(f'# {problem}')
    return 1 if any(problems for _, problems in results) else 0


def main(argv):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if len(argv) > 2 or argv[1:] not in ([], ['--write'], ['--check']):
        print(__doc__, file=sys.stderr)
        return 2
    rules = read_rules(root)
    code, test = collect(root, CODE_DIRS), collect_tests(root)
    text = render(rules, code, test)
    if argv[1:] == ['--check']:
        return check(root, rules, code, test, text)
    if argv[1:] == ['--write']:
        with open(os.path.join(root, OUTPUT), 'w', encoding='utf-8') as f:
            f.write(text)
        return 0
    print(text, end='')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
