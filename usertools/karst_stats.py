# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The ratio of B to A with an interval, for runs measured by turns (paired) and for others.

For values measured by turns, the ratio of each round is used: the Hodges-Lehmann estimate (median of the
means of all pairs of log ratios), and the interval that Wilcoxon's signed-rank test does not reject.  For
two separate series, the rank-sum test (Mann-Whitney) is used: the estimate is the median of all differences
of logs.  Both are exact for any number of runs, assume no normal distribution, and are robust against a few
outliers.
"""
import functools
import itertools
import math
import statistics


@functools.lru_cache(maxsize=None)
def signed_rank_counts(n):
    """Of the 2^n outcomes, how many have each sum of ranks 0..n(n+1)/2."""
    counts = [1]
    for rank in range(1, n + 1):
        grown = counts + [0] * rank
        for total, number in enumerate(counts):
            grown[total + rank] += number
        counts = grown
    return counts


@functools.lru_cache(maxsize=None)
def rank_sum_counts(n, m):
    """Of the C(n+m, n) orders, how many have each U 0..nm."""
    # U is distributed as the size of a partition into at most n parts of at most m: the Gaussian binomial
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for total in range(n * m, m + i - 1, -1):      # times 1 - q^(m+i)
            counts[total] -= counts[total - m - i]
        for total in range(i, n * m + 1):              # over 1 - q^i
            counts[total] += counts[total - i]
    return counts


def depth(counts, alpha):
    """How many values an interval of error @alpha leaves out at each end; 0: there is no such interval."""
    allowed, whole, below = alpha / 2, sum(counts), 0
    for k, number in enumerate(counts):
        below += number
        if below > allowed * whole:
            return k
    return len(counts)


def interval(differences, counts, alpha):
    """(estimate, low, high) as ratios; low and high None where there are too few runs."""
    found = sorted(differences)
    k = depth(counts, alpha)
    middle = math.exp(statistics.median(found))
    if k < 1:
        return middle, None, None
    return middle, math.exp(found[k - 1]), math.exp(found[-k])


def paired(pairs, alpha):
    """@pairs: [(a, b)], all above 0."""
    logs = [math.log(b / a) for a, b in pairs]
    walsh = [(x + y) / 2 for x, y in itertools.combinations_with_replacement(logs, 2)]
    return interval(walsh, signed_rank_counts(len(logs)), alpha)


def unpaired(first, second, alpha):
    """All values above 0."""
    differences = [math.log(b / a) for a in first for b in second]
    return interval(differences, rank_sum_counts(len(first), len(second)), alpha)


def runs_wanted(alpha, by_turns):
    """The smallest number of runs of each build for which there is an interval."""
    n = 1
    while not depth(signed_rank_counts(n) if by_turns else rank_sum_counts(n, n), alpha):
        n += 1
    return n
