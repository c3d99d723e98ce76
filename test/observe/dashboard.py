# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Grafana's dashboard (config/grafana/karst.json) against the metrics that an exporter serves.

problems(path, values): each query names metrics and labels that are there, takes rates of what only
grows and of nothing else, and its brackets close; legends use labels that its result has.
"""
import json
import re

WORDS = {'sum', 'by', 'rate'}  # of PromQL, as far as the dashboard uses it
VARIABLES = {'$engine', '$__rate_interval'}
SELECTOR = re.compile(r'(karst_\w+)\{([^}]*)\}(\[\$__rate_interval\])?')


def labels_of(values):
    """{metric: set of label names}"""
    found = {}
    for metric, labels in values:
        found.setdefault(metric, set()).update(name for name, _ in labels)
    return found


def closes(text):
    ends, depth = {')': '(', ']': '[', '}': '{'}, []
    for c in text:
        if c in '([{':
            depth.append(c)
        elif c in ends and (not depth or depth.pop() != ends[c]):
            return False
    return not depth


def judge_query(expr, legend, labels):
    """Lines with the faults of one query."""
    problems = [] if closes(expr) else ['brackets do not close']
    selectors = SELECTOR.findall(expr)
    if not selectors or len(selectors) != len(re.findall(r'\bkarst_', expr)):
        problems.append('a metric without a selector')
    kept = None
    for metric, matchers, span in selectors:
        if metric not in labels:
            problems.append(f'{metric} is not served')
            continue
        for name in re.findall(r'(\w+)\s*[=!]~?"', matchers):
            if name not in labels[metric]:
                problems.append(f'{metric} has no label {name}')
        in_rate = re.search(r'rate\(' + re.escape(metric) + r'\{', expr) is not None
        if metric.endswith('_total') != (bool(span) and in_rate):
            problems.append(f'{metric}: a rate is of a counter, and of nothing else')
        kept = labels[metric] if kept is None else kept & labels[metric]
    for group in re.findall(r'by \(([^)]*)\)', expr):
        kept = (kept or set()) & {name.strip() for name in group.split(',')}
        if kept != {name.strip() for name in group.split(',')}:
            problems.append(f'by ({group}): no such labels')
    rest = re.sub(r'"[^"]*"', '', SELECTOR.sub(' ', expr))
    rest = re.sub(r'by \([^)]*\)', 'by', rest)
    for word in re.findall(r'[a-zA-Z_$]\w*', rest):
        if word not in WORDS:
            problems.append(f'{word}: not a word of PromQL that is known here')
    for variable in re.findall(r'\$\w+', expr):
        if variable not in VARIABLES:
            problems.append(f'{variable} is not a variable')
    for name in re.findall(r'\{\{(\w+)\}\}', legend):
        if name not in (kept or set()):
            problems.append(f'the legend has {name}, and the result has not')
    return [f'{expr}: {problem}' for problem in problems]


def overlap(a, b):
    return a['x'] < b['x'] + b['w'] and b['x'] < a['x'] + a['w'] and \
        a['y'] < b['y'] + b['h'] and b['y'] < a['y'] + a['h']


def problems(path, values):
    """@values: {(metric, frozenset of labels)}, as parse_exposition() finds them."""
    labels = labels_of(values)
    with open(path, encoding='utf-8') as f:
        board = json.load(f)
    found = []
    names = {variable['name'] for variable in board['templating']['list']}
    if names != {'datasource', 'engine'}:
        found.append(f'variables: {names}')
    for variable in board['templating']['list']:
        query = re.fullmatch(r'label_values\((\w+), (\w+)\)', variable['query'])
        if variable['type'] == 'query' and (not query or query.group(2) not in labels.get(query.group(1), ())):
            found.append(f"variable {variable['name']}: {variable['query']}")
    panels = board['panels']
    if len({panel['id'] for panel in panels}) != len(panels):
        found.append('two panels have one id')
    for i, panel in enumerate(panels):
        place = panel['gridPos']
        if place['x'] + place['w'] > 24 or any(overlap(place, other['gridPos']) for other in panels[:i]):
            found.append(f"{panel['title']}: its place")
        if not panel['targets']:
            found.append(f"{panel['title']}: no query")
        for target in panel['targets']:
            if target['datasource'] != {'type': 'prometheus', 'uid': '${datasource}'}:
                found.append(f"{panel['title']}: data source")
            found += judge_query(target['expr'], target['legendFormat'], labels)
    return found
