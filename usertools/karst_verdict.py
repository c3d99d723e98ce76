# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Compares two performance records: a ratio, its interval and a verdict for each case.

Verdicts: "slower" and "faster": the whole interval is beyond the tolerance; "same": the whole interval is
within it; "unsure": none of these, or too few runs for an interval; "failed": the case was measured before,
and now it fails sometimes or always; "missing": the case is in one record only, or is measured differently.
A run that moved no data has failed.  A case that fails more often than before is at best unsure, because the
remaining runs say nothing about the failed ones.  The error is divided among the cases (Bonferroni): for two
equal builds, all verdicts are right with the given confidence.
"""
import karst_record
import karst_stats

CONFIDENCE = 0.95
TOLERANCE = {True: 0.02, False: 0.10}  # by turns; not by turns, where the machine may change in between


def values_above_zero(case):
    return {run['round']: run['value'] for run in case['runs'] if run['value'] > 0}


def failures(case):
    return case['failed'] + sum(run['value'] == 0 for run in case['runs'])


def judge(before, after, by_turns, alpha, tolerance):
    """The row of a case that is in both records."""
    old, new = values_above_zero(before), values_above_zero(after)
    both = sorted(old.keys() & new.keys())
    row = {'name': after['name'], 'unit': after['unit'], 'before': karst_record.median(before),
           'after': karst_record.median(after), 'runs': [len(old), len(new)],
           'ratio': None, 'low': None, 'high': None}
    if any(before[name] != after[name] for name in ('unit', 'better')):
        return {**row, 'verdict': 'missing'}
    if old and (failures(after) and not failures(before) or not new):
        return {**row, 'verdict': 'failed'}
    if not old or not new or by_turns and not both:
        return {**row, 'verdict': 'missing'}
    if by_turns:
        row['runs'] = [len(both), len(both)]
        ratio, low, high = karst_stats.paired([(old[i], new[i]) for i in both], alpha)
    else:
        ratio, low, high = karst_stats.unpaired(list(old.values()), list(new.values()), alpha)
    if after['better'] == 'lower':  # a ratio above 1 is always better
        ratio, low, high = 1 / ratio, high and 1 / high, low and 1 / low
    row.update(ratio=ratio, low=low, high=high)
    if low is None:
        verdict = 'unsure'
    elif high < 1 - tolerance:
        verdict = 'slower'
    elif low > 1 / (1 - tolerance):
        verdict = 'faster'
    elif low >= 1 - tolerance and high <= 1 / (1 - tolerance):
        verdict = 'same'
    else:
        verdict = 'unsure'
    if verdict in ('same', 'faster') and failures(after) > failures(before):
        verdict = 'unsure'
    return {**row, 'verdict': verdict}


def differences(before, after):
    """The differences between the machines."""
    return [f'{name}: {before["machine"][name]} and {after["machine"][name]}' for name in karst_record.SAME_MACHINE
            if before['machine'][name] != after['machine'][name]]


def compare(before, after, word='', confidence=CONFIDENCE, tolerance=None):
    """The whole comparison, as karst-compare --json prints it."""
    by_turns = before['session'] == after['session']
    tolerance = TOLERANCE[by_turns] if tolerance is None else tolerance
    old, new = ({case['name']: case for case in record['cases'] if word in case['name'] or word in case['group']}
                for record in (before, after))
    shared = [name for name in old if name in new]
    alpha = (1 - confidence) / max(len(shared), 1)
    rows = [judge(old[name], new[name], by_turns, alpha, tolerance) for name in shared]
    rows += [{'name': name, 'unit': '', 'before': None, 'after': None, 'runs': [0, 0], 'ratio': None, 'low': None,
              'high': None, 'verdict': 'missing'} for name in [*old, *new] if (name in old) != (name in new)]
    return {'before': karst_record.describe(before), 'after': karst_record.describe(after),
            'by_turns': by_turns, 'confidence': confidence, 'tolerance': tolerance,
            'runs_wanted': karst_stats.runs_wanted(alpha, by_turns), 'machines': differences(before, after),
            'cases': rows}


def show(found):
    """The comparison as text."""
    print(f'\nbefore  {found["before"]}\nafter   {found["after"]}')
    if found['by_turns']:
        print('measured by turns: what the machine did meanwhile is in the intervals')
    else:
        print('not measured by turns: what has changed of the machine between them is in NO interval, only in '
              f'the tolerance of {found["tolerance"]:.0%}')
    for line in found['machines']:
        print(f'not the same machine: {line}')
    width = max((len(row['name']) for row in found['cases']), default=4)
    print(f'\n{"case":{width}}  {"before":>10} {"after":>10}        times as good, interval   runs')
    for row in found['cases']:
        print(f'{row["name"]:{width}}  {figure(row["before"])} {figure(row["after"])} {row["unit"]:5} '
              f'{ratio(row["ratio"])} {ratio(row["low"])} to {ratio(row["high"])}  {min(row["runs"]):3}  {row["verdict"]}')
    counts = {}
    for row in found['cases']:
        counts[row['verdict']] = counts.get(row['verdict'], 0) + 1
    print('\n' + ', '.join(f'{number} {verdict}' for verdict, number in sorted(counts.items())) +
          f'; together right with {found["confidence"]:.0%}, tolerance {found["tolerance"]:.0%}')
    if any(row['ratio'] is not None and row['low'] is None for row in found['cases']):
        print(f'too few runs for intervals: {found["runs_wanted"]} of each case at least, or fewer cases')


def figure(value):
    return f'{"-":>10}' if value is None else f'{value:10.4g}'


def ratio(value):
    return f'{"-":>6}' if value is None else f'{value:6.3f}'
