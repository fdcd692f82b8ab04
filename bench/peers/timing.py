"""Times that are compared with each other: in rounds, every candidate once a round, so that a disturbance of the machine hits all."""
import statistics
import time


def interleave(candidates, rounds, least_seconds=0.0):
    """candidates: {name: call}. A call of less than least_seconds is repeated within a round. Returns {name: [seconds of a call]}."""
    repeats = {}
    for name, call in candidates.items():
        call()  # warms up, compiles
        begin = time.perf_counter()
        call()
        repeats[name] = max(1, int(least_seconds / max(1e-9, time.perf_counter() - begin)))
    seconds = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            begin = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            seconds[name].append((time.perf_counter() - begin) / repeats[name])
    return seconds


def summary(seconds, ours):
    """[{name, median, least, most, over_ours}]; over_ours is the median of the rounds' ratios."""
    rows = []
    for name, values in seconds.items():
        ratios = [value / mine for value, mine in zip(values, seconds[ours])]
        rows.append({"name": name, "median": statistics.median(values), "least": min(values), "most": max(values),
                     "over_ours": statistics.median(ratios)})
    return rows
