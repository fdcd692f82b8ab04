"""All benchmarks in one go, and the page that reports them: `make bench`.

  python bench/run.py [--out docs/benchmarks.md] [--rounds 5] [--threads N] [--skip-step]

Every figure is a ratio of things measured in turn in one run. Takes about half an hour; let the machine be idle otherwise.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent


def run(command):
    print("+", " ".join(command), file=sys.stderr, flush=True)
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def straight_line(points):
    """Least squares; the largest deviation, relative to the last value."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return max(abs(mean_y + slope * (x - mean_x) - y) for x, y in points) / points[-1][1]


def depth_read_section(rounds, threads):
    read = run(["build/depthroute", "bench", "depth-read", "--sources", "1", "2", "4", "9", "16", "32", "64", "--routes", "1", "2", "--rounds",
                str(rounds), "--threads", str(threads), "--json"])
    by = {(item["sources"], item["routes"]): item for item in read["results"]}
    nine = by[9, 2]
    deviation = straight_line([(k, item["forward_seconds"]["median"]) for (k, r), item in sorted(by.items()) if r == 2])
    text = [f"""## Depth read

```
build/depthroute bench depth-read --sources 1 2 4 9 16 32 64 --routes 1 2
```

{read["machine"]}; {threads} threads, float32, {nine["tokens"]} tokens of width {nine["width"]}; medians of {rounds} rounds. The roofline is the
time of reading the sources and writing the mixtures, each at the speed measured for it in the same run. A block is four sublayers with R
routes and one in turn.
""",
            table(["sources K", "routes", "share of the roofline", "time over that of copying the sources", "forward and backward over forward",
                   "a block's reads in two phases over one", "the same counted in rows"],
                  [[k, r, f"{item['share_of_roofline'] * 100:.0f} %", f"{item['forward_over_copy']:.2f}",
                    f"{item['forward_backward_seconds']['median'] / item['forward_seconds']['median']:.1f}",
                    f"{item['block_two_phases_seconds']['median'] / item['block_one_phase_seconds']['median']:.2f}" if k > 6 else "–",
                    f"{item['block_two_phases_rows'] / item['block_one_phase_rows']:.2f}" if k > 6 else "–"]
                   for (k, r), item in sorted(by.items())]),
            f"""
Two routes take {nine["forward_seconds"]["median"] / by[9, 1]["forward_seconds"]["median"]:.2f} times as long as one (K = 9). Over K = 1 to 64 the time of two routes is a straight line within
{deviation * 100:.1f} % of its largest value.
"""]
    peers = run([sys.executable, "bench/peers/depth_read.py", "--rounds", str(rounds), "--threads", str(threads), "--json"])
    text.append(f"""### Against PyTorch

```
python bench/peers/depth_read.py
```

The same read, {peers["routes"]} routes over K = {peers["sources"]} sources, in one process with PyTorch {peers["torch"]}: how many times as long others take.
"eager" and "torch.compile" are the formula with separate sources, "stacked" on a stack of them; attn-res 0.1.0 is a package of PyPI.
""")
    forward, both = peers["results"]["forward"], peers["results"]["forward and backward"]
    text.append(table(["", "forward", "forward and backward"],
                      [[row["name"], f"{row['over_ours']:.2f}", f"{other['over_ours']:.2f}"] for row, other in zip(forward, both)]))
    return "\n".join(text)


def step_section(rounds, threads):
    variants = ["standard", "block_attnres", "rd_attnres", "denseformer", "delta_block", "muddformer"]
    bench = run(["build/depthroute", "bench", "step", "--preset", "s", "--variants", *variants, "--rounds", str(rounds), "--steps", "2", "--threads",
                 str(threads), "--json"])
    peers = run([sys.executable, "bench/peers/step.py", "--rounds", "3", "--threads", str(threads), "--json"])
    rows = [[f"`{v['variant']}`", f"{v['relative_to_first']:.3f}", f"{v['share_of_limit']:.2f}", f"{v['peak_bytes'] / 1e9:.2f}",
             f"{v['residual_bytes_per_token']:,.0f}", f"{v['parameters']:,}"] for v in bench["variants"]]
    return "\n".join([f"""
## Training step

```
build/depthroute bench step --preset s --variants {" ".join(variants)} --rounds {rounds} --steps 2
```

{bench["machine"]}; {threads} threads, float32, preset S, 1 x {bench["tokens_a_step"]} tokens: forward, backward, clipping, AdamW. The limit is the time of the step's
matrix products at the speed measured for each of their shapes in the same run. Medians over {rounds} rounds, in each of which every
variant has its turn.
""",
                      table(["variant", "tokens/s over standard's", "standard's limit over its time", "peak GB", "residual bytes/token", "parameters"],
                            rows),
                      f"""
### Against PyTorch

```
python bench/peers/step.py
```

The standard residual at S, the same model in PyTorch {peers["torch"]}, in turn in one run: how many times as long others take for a step.
""",
                      table(["", "time over depthroute's"], [[row["name"], f"{row['over_ours']:.2f}"] for row in peers["results"]])])


def prepare_section(rounds, threads):
    with tempfile.TemporaryDirectory(dir=ROOT) as work:
        subprocess.run([sys.executable, "scripts/synthetic_fineweb_edu.py", work, "--gigabytes", "0.06", "--files", "1"], check=True, cwd=ROOT)
        [file] = pathlib.Path(work).glob("*.parquet")
        subprocess.run(["build/depthroute", "prepare", file, "--out", f"{work}/data", "--vocabulary-size", "32768", "--threads", str(threads)], check=True,
                       cwd=ROOT, stdout=subprocess.DEVNULL)
        figures = run([sys.executable, "bench/peers/encode.py", str(file), "--tokenizer", f"{work}/data/tokenizer.model", "--rounds", str(rounds), "--threads",
                       str(threads), "--json"])
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    return "\n".join([f"""
## Preparing data

```
python scripts/synthetic_fineweb_edu.py OUT --gigabytes 0.06 --files 1
python bench/peers/encode.py OUT/000_00000.parquet --tokenizer DATA/tokenizer.model
```

`prepare` as a whole command (it reads the file three times, for its checksum, the split and the tokens, encodes and writes) on {figures["bytes"] / 1e6:.0f} MB
of text with a vocabulary of 32,768, against encoders of texts that are in memory, one thread each, in turn in one run ({versions}).
""",
                      table(["", "time over that of prepare with one thread"], [[row["name"], f"{row['over_ours']:.2f}"] for row in figures["results"]]),
                      f"""
With {figures["threads"]} threads `prepare` has {figures["share_of_limit"]:.1f} times the speed of {figures["threads"]} threads of SentencePiece: it keeps the tokens of words seen before.
"""])


def processes_section(skip_large):
    def measured(*arguments):
        return subprocess.run(["bench/processes.sh", *arguments], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout

    page = f"""
## Several processes

```
bench/processes.sh                # the micro preset, 200 steps of 8 windows
bench/processes.sh s 4 4
```

RD-AttnRes in one process with a thread for each of this machine's {os.cpu_count()} cores, and in processes that share the same cores, connected by the
loopback device of a network namespace that nothing else uses. MB are sent by all processes together, a checkpoint's share included.

{measured()}"""
    if not skip_large:
        page += f"""
The same at S:

{measured("s", "4", "4")}"""
    return page + """
A step sends the gradients twice and the updated parameters once, each N - 1 times for N processes; without sharing out the optimizer's state
only the former. At S that can only cost on one machine; what of the speed is left is what the overlap with the backward pass hides. The micro
preset's operations are small for two threads: there several processes can gain more than their messages cost.
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=str(ROOT / "docs/benchmarks.md"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--skip-step", action="store_true", help="leave the training steps out, which take most of the time")
    options = parser.parse_args()
    page = f"""# Benchmarks

Every figure is a ratio of things measured in turn in one run, on the same machine: to a limit (the machine's matrix products or memory), to a
peer, or between variants. `make bench` writes this page anew. {datetime.date.today().isoformat()}.

"""
    page += depth_read_section(options.rounds, options.threads) + "\n"
    page += prepare_section(3, options.threads) + "\n"
    if not options.skip_step:
        page += step_section(options.rounds, options.threads) + "\n"
    page += processes_section(options.skip_step) + "\n"
    path = pathlib.Path(options.out)
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(page)
    temporary.rename(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
