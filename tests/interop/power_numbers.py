#!/usr/bin/env python3
"""Prints what src/study/power_test.cc expects: the power of the paired t test by scipy's noncentral t distribution, checked against
statsmodels, and the least number of pairs by trying one after another.

    .venv-interop/bin/python tests/interop/power_numbers.py
"""

import math

from scipy.stats import nct, t
from statsmodels.stats.power import TTestPower


def power(difference: float, deviation: float, pairs: int, level: float) -> float:
    degrees, noncentrality = pairs - 1, abs(difference) / deviation * math.sqrt(pairs)
    threshold = t.isf(level / 2, degrees)
    return float(nct.sf(threshold, degrees, noncentrality) + nct.cdf(-threshold, degrees, noncentrality))


def required_pairs(difference: float, deviation: float, wanted: float, level: float) -> int:
    pairs = 2
    while power(difference, deviation, pairs, level) < wanted:
        pairs += 1
    return pairs


for case in [(0.03, 0.03, 5, 0.05), (-0.03, 0.03, 5, 0.05), (0.01, 0.03, 10, 0.05), (0.0301, 0.012, 5, 0.01), (0.02, 0.05, 40, 0.05),
             (0.005, 0.05, 400, 0.05), (0.03, 0.03, 2, 0.05), (0.2, 0.05, 3, 0.001), (0.001, 0.03, 7, 0.05), (0.03, 0.03, 5, 0.0125),
             (0.00009, 0.03, 3000, 0.05), (0.00009, 0.03, 1000000, 0.05), (0.0, 0.03, 5, 0.05), (1, 0.01, 5, 0.05), (1, 0.01, 3, 0.05)]:
    value = power(*case)
    assert abs(value - TTestPower().power(case[0] / case[1], case[2], case[3])) < 1e-10, case
    print("power", *case, repr(value))
for case in [(0.03, 0.03, 0.8, 0.05), (0.03, 0.01, 0.8, 0.05), (0.01, 0.03, 0.8, 0.05), (0.01, 0.03, 0.9, 0.05), (0.003, 0.03, 0.8, 0.05),
             (0.03, 0.03, 0.8, 0.0125), (1, 0.01, 0.8, 0.05)]:
    print("required pairs", *case, required_pairs(*case))
