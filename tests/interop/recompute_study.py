#!/usr/bin/env python3
"""Recomputes a study's report from study.json and metrics.jsonl alone, with numpy and scipy, and compares every number with
`depthroute report --format json`. Exits with 1 where one is off.

    .venv-interop/bin/python tests/interop/recompute_study.py runs/study-micro [build/depthroute]

It shares no code with src/study and uses other algorithms where there are some: scipy's distributions for the tests, numpy's
interpolation, every sign flip listed. Only the bootstrap's random numbers are those of the program, or its interval could not be
compared. What is said in words is not checked.
"""

import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from scipy import stats

# Rounding alone: losses of a few nats carry 1e-15, and a p-value of small differences of theirs loses some digits of it.
RELATIVE, ABSOLUTE = 1e-9, 1e-13
LEAST_PAIRS = 5


class Comparer:
    def __init__(self):
        self.checked, self.wrong = 0, []

    def same(self, where, expected, reported):
        self.checked += 1
        if isinstance(expected, (list, tuple)) and isinstance(reported, list) and len(expected) == len(reported):
            self.checked -= 1
            for i, (a, b) in enumerate(zip(expected, reported)):
                self.same(f"{where}[{i}]", a, b)
        elif isinstance(expected, (int, float)) and isinstance(reported, (int, float)):
            if not math.isclose(expected, reported, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
                self.wrong.append(f"{where}: {reported} in the report, {expected} here")
        elif expected != reported:
            self.wrong.append(f"{where}: {reported!r} in the report, {expected!r} here")


def known(value):
    """None where a number is missing or not finite, as in the report."""
    return value if value is not None and math.isfinite(value) else None


class Run:
    """A run folder: its validations by step, in order, and whether it may be compared."""

    def __init__(self, folder, study_hash):
        self.description, self.validations, self.train, self.peak, self.test = None, [], [], None, None
        try:
            description = json.loads((folder / "run.json").read_text())
            events = self.events(folder / "metrics.jsonl")
        except (OSError, ValueError):
            return
        if description["study_hash"] != study_hash:
            return
        self.description = description
        validations = {event["step"]: event for event in events if event["event"] == "validation"}
        self.validations = [validations[step] for step in sorted(validations)]
        train = {event["step"]: event for event in events if event["event"] == "train"}
        self.train = [train[step] for step in sorted(train)]
        peaks = [event["peak_bytes"] for event in events if event["event"] == "memory"]
        self.peak = max(peaks) if peaks else None
        ends = [i for i, event in enumerate(events) if event["event"] == "end"]
        self.finished = bool(ends) and events[ends[-1]]["reason"] == "finished"
        if (folder / "test.json").exists():
            self.test = json.loads((folder / "test.json").read_text())

    @staticmethod
    def events(path):
        if not path.exists():
            return []
        lines = path.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]  # what follows the last line's end was cut off by a kill

    def usable(self):
        return self.description is not None

    def at(self, milestone):
        """The validation at a milestone: the nearest one marked so, less than a step away."""
        points = [point for point in self.validations if point.get("milestone")]
        if not points:
            return None
        point = min(points, key=lambda p: abs(p["tokens"] - milestone))
        away = abs(point["tokens"] - milestone)
        return point if away == 0 or away < point["tokens"] // max(1, point["step"]) else None

    def loss_at(self, key, spent):
        points = [p for p in self.validations if known(p.get(key)) is not None and known(p.get("loss")) is not None]
        spends = [p[key] for p in points]
        if not points or not spends[0] <= spent <= spends[-1]:
            return None
        return float(np.interp(spent, spends, [p["loss"] for p in points]))


def bootstrap(differences, seed=1, resamples=10000):
    """The program's random numbers: splitmix64, whose k-th state is seed + k * gamma."""
    n, (m1, m2, gamma) = len(differences), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, resamples * n + 1, dtype=np.uint64) * np.uint64(gamma)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(m1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(m2)
        z ^= z >> np.uint64(31)
        drawn = ((z >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)
    means = np.sort(np.asarray(differences)[drawn.astype(np.int64)].reshape(resamples, n).mean(axis=1))
    return [float(means[math.floor(share * (resamples - 1) + 0.5)]) for share in (0.025, 0.975)]


def sign_flips(differences):
    sums = np.array([np.dot(signs, differences) for signs in itertools.product((-1, 1), repeat=len(differences))])
    return float(np.mean(np.abs(sums) >= abs(np.sum(differences)) - 1e-12 * np.sum(np.abs(differences))))


def statistics(pairs):
    """pairs: (loss, loss of the baseline)."""
    names = ["mean_difference", "standard_deviation", "largest_difference", "t_interval_95", "bootstrap_interval_95", "t_test_p",
             "sign_test_p", "permutation_test_p", "perplexity_ratio", "effect_in_baseline_standard_deviations"]
    result = dict.fromkeys(names)
    d = np.array([a - b for a, b in pairs])
    n, wins, losses = len(d), int(np.sum(d < 0)), int(np.sum(d > 0))
    result |= {"pairs": n, "wins": wins, "losses": losses, "ties": n - wins - losses}
    if n == 0:
        return result
    mean = float(np.mean(d))
    result |= {"mean_difference": mean, "largest_difference": float(np.max(np.abs(d))), "perplexity_ratio": math.exp(mean)}
    result["sign_test_p"] = float(stats.binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0
    # Beyond 20 pairs the program draws flips; its share is then known to about a thousandth.
    result["permutation_test_p"] = sign_flips(d) if n <= 16 else "not checked"
    if n < 2:
        return result
    deviation = float(np.std(d, ddof=1))
    baseline = float(np.std([b for _, b in pairs], ddof=1))
    result["standard_deviation"] = deviation
    half = float(stats.t.ppf(0.975, n - 1)) * deviation / math.sqrt(n)
    result["t_interval_95"] = [mean - half, mean + half]
    result["bootstrap_interval_95"] = bootstrap(d)
    result["t_test_p"] = float(stats.ttest_1samp(d, 0).pvalue) if deviation > 0 else float(mean == 0)
    result["effect_in_baseline_standard_deviations"] = mean / baseline if baseline > 0 else None
    return result


def paired(run, baseline, milestone):
    """Losses at equal tokens, time and FLOPs; None where there is no pair."""
    none = dict.fromkeys(("tokens", "seconds", "flops"))
    if not (run and baseline and run.usable() and baseline.usable()):
        return none
    a, b = run.at(milestone), baseline.at(milestone)
    if not a or not b or known(a["loss"]) is None or known(b["loss"]) is None or a["tokens"] != b["tokens"]:
        return none
    if run.description["data_hash"] != baseline.description["data_hash"]:
        return none
    result = {"tokens": (a["loss"], b["loss"])}
    for key in ("seconds", "flops"):
        spent = [known(point.get(key)) for point in (a, b)]
        losses = [one.loss_at(key, min(spent)) for one in (run, baseline)] if None not in spent else [None]
        result[key] = None if None in losses else tuple(losses)
    return result


def power(difference, deviation, pairs, level):
    degrees, noncentrality = pairs - 1, abs(difference) / deviation * math.sqrt(pairs)
    threshold = stats.t.isf(level / 2, degrees)
    return float(stats.nct.sf(threshold, degrees, noncentrality) + stats.nct.cdf(-threshold, degrees, noncentrality))


def seeds_needed(s, decision, level):
    if not s["standard_deviation"] or not s["mean_difference"]:
        return None
    # More than a million seeds: not worth the search.
    high = 2
    while power(s["mean_difference"], s["standard_deviation"], high, level) < 0.8:
        high *= 2
        if high > 1 << 20:
            return "not checked"
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        enough = power(s["mean_difference"], s["standard_deviation"], middle, level) >= 0.8
        low, high = (low, middle) if enough else (middle, high)
    least = LEAST_PAIRS
    while decision["test"] != "t" and 2.0 ** (1 - least) >= level:
        least += 1
    return max(high, least)


def holm(values):
    order, adjusted, least = sorted(range(len(values)), key=lambda i: values[i]), [0.0] * len(values), 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, (len(values) - rank) * values[i]))
        adjusted[i] = least
    return adjusted


def verdicts(protocol, decisive):
    """Outcome, p-value and corrected p-value of each comparison."""
    decision, key = protocol["decision"], {"t": "t_test_p", "sign": "sign_test_p", "permutation": "permutation_test_p"}
    outcomes = []
    for comparison, s in zip(protocol["comparisons"], decisive):
        if not {comparison["variant"], comparison["baseline"]} <= set(protocol["variants"]):
            outcomes.append("not comparable")
        elif s["pairs"] < len(protocol["seeds"]):
            outcomes.append("undecided")
        else:
            outcomes.append("too few seeds" if s["pairs"] < LEAST_PAIRS else "no difference shown")
    raw = [s[key[decision["test"]]] if o == "no difference shown" else None for s, o in zip(decisive, outcomes)]
    corrected = [1.0 if p is None else p for p in raw]
    if decision.get("correction", "none") == "holm":
        corrected = holm(corrected)
    for i, s in enumerate(decisive):
        if raw[i] is None:
            corrected[i] = None
        elif corrected[i] < decision["level"] and s["mean_difference"] != 0 and (
                abs(s["mean_difference"]) >= decision["minimal_difference"]):
            outcomes[i] = "better" if s["mean_difference"] < 0 else "worse"
    return list(zip(outcomes, raw, corrected))


def check_comparison(compare, where, expected, reported):
    for name, value in expected.items():
        if value != "not checked":
            compare.same(f"{where} {name}", value, reported.get(name))


def check_milestones(compare, protocol, runs, report):
    """Losses of each run, and their means."""
    entries = iter(report["milestones"])
    for milestone in protocol["milestones"]:
        for variant in protocol["variants"]:
            entry = next(entries)
            points = [runs[variant, seed].at(milestone) for seed in protocol["seeds"] if runs[variant, seed].usable()]
            points = [point for point in points if point and known(point["loss"]) is not None]
            losses = [point["loss"] for point in points]
            bits = [known(point.get("bits_per_byte")) for point in points]
            mean = float(np.mean(losses)) if losses else None
            expected = {"milestone": milestone, "variant": variant, "runs": len(losses), "mean_loss": mean,
                        "standard_deviation": float(np.std(losses, ddof=1)) if len(losses) > 1 else None,
                        "perplexity": math.exp(mean) if losses else None,
                        "bits_per_byte": float(np.mean(bits)) if bits and None not in bits else None}
            check_comparison(compare, f"{variant} at {milestone}:", expected, entry)
    for entry in report["runs"]:
        run, where = runs[entry["variant"], entry["seed"]], f"{entry['variant']} seed {entry['seed']}:"
        points = [(m, run.at(m)) for m in protocol["milestones"] if run.usable() and run.at(m)]
        compare.same(f"{where} milestones", [m for m, _ in points], [item["milestone"] for item in entry["milestones"]])
        for (_, point), item in zip(points, entry["milestones"]):
            for key in ("tokens", "step", "loss", "perplexity", "bits_per_byte", "seconds", "flops"):
                compare.same(f"{where} {key}", known(point.get(key)), item[key])
        for key in ("loss", "perplexity", "bits_per_byte"):
            compare.same(f"{where} test {key}", run.test and known(run.test.get(key)), entry.get("test", {}).get(key))


def check_costs(compare, protocol, runs, report):
    for variant, entry in zip(protocol["variants"], report["costs"]):
        usable = [runs[variant, seed] for seed in protocol["seeds"] if runs[variant, seed].usable()]
        lasts = [run.train[-1] for run in usable if run.train and run.train[-1]["seconds"] > 0]
        rates = [last["tokens"] / last["seconds"] for last in lasts]
        peaks = [run.peak for run in usable if run.peak is not None]
        expected = {"variant": variant, "tokens_per_second": float(np.mean(rates)) if rates else None,
                    "peak_bytes": max(peaks) if peaks else None}
        check_comparison(compare, f"cost of {variant}:", expected, entry)


def check_comparisons(compare, protocol, runs, report):
    decision, decisive = protocol["decision"], []
    divided = decision.get("correction", "none") == "holm"
    level = decision["level"] / len(protocol["comparisons"]) if divided else decision["level"]
    for comparison, entry in zip(protocol["comparisons"], report["comparisons"]):
        names = comparison["variant"], comparison["baseline"]
        compare.same("comparison", list(names), [entry["variant"], entry["baseline"]])
        for milestone, item in zip(protocol["milestones"], entry["milestones"]):
            where = f"{names[0]} - {names[1]} at {milestone}:"
            pairs = [paired(runs.get((names[0], seed)), runs.get((names[1], seed)), milestone) for seed in protocol["seeds"]]
            for key, statistics_key, pairs_key in (("tokens", "equal_tokens", "pairs"), ("seconds", "equal_time", "equal_time_pairs"),
                                                   ("flops", "equal_flops", "equal_flops_pairs")):
                for pair, reported in zip(pairs, item[pairs_key]):
                    losses = pair[key] or (None, None)
                    here = f"{where} {pairs_key} of seed {reported['seed']}"
                    compare.same(here, [*losses, losses[0] - losses[1] if pair[key] else None],
                                 [reported.get("variant_loss"), reported.get("baseline_loss"), reported.get("difference")])
                    compare.same(f"{here} has a reason", pair[key] is None, "no_pair_because" in reported)
                expected = statistics([pair[key] for pair in pairs if pair[key]])
                check_comparison(compare, f"{where} {statistics_key}", expected, item[statistics_key])
                if key == "tokens" and milestone == decision["milestone"]:
                    decisive.append(expected)
    for comparison, s, (outcome, raw, corrected), entry in zip(protocol["comparisons"], decisive, verdicts(protocol, decisive),
                                                               report["comparisons"]):
        comparable = outcome != "not comparable"
        expected = {"outcome": outcome, "rule_p": raw, "rule_corrected_p": corrected,
                    "seeds_for_observed_difference": seeds_needed(s, decision, level) if comparable else None}
        check_comparison(compare, f"verdict on {comparison['variant']}:", expected, entry)


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    program = sys.argv[2] if len(sys.argv) > 2 else "build/depthroute"
    with tempfile.TemporaryDirectory() as temporary:
        out = pathlib.Path(temporary) / "report.json"
        subprocess.run([program, "report", str(folder), "--format", "json", "--out", str(out)], check=True)
        report = json.loads(out.read_text())
    study = json.loads((folder / "study.json").read_text())
    protocol = study["protocol"]
    runs = {(variant, seed): Run(folder / "runs" / f"{variant}-seed{seed}", study["hash"])
            for variant in protocol["variants"] for seed in protocol["seeds"]}
    compare = Comparer()
    compare.same("hash", study["hash"], report["hash"])
    check_milestones(compare, protocol, runs, report)
    check_comparisons(compare, protocol, runs, report)
    check_costs(compare, protocol, runs, report)
    for line in compare.wrong:
        print(line)
    print(f"{compare.checked} values recomputed, {len(compare.wrong)} differ")
    return 1 if compare.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
