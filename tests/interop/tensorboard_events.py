#!/usr/bin/env python3
"""A run's event files as the tensorboard package reads them, against its metrics.jsonl: every number of every event, also of a run that was
killed and continued.

  .venv-interop/bin/python tests/interop/tensorboard_events.py [--program build/depthroute]
"""
import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import tempfile
import time

from tensorboard.backend.event_processing import event_accumulator

CONFIG = """
seed = 1
model.preset = "tiny"
model.vocabulary = 300
residual.variant = "rd_attnres"
data.folder = "data"
[train]
tokens = 6400
batch_windows = 4
learning_rate = 1e-2
milestones = [3200, 6400]
validation_interval = 5
checkpoint_interval = 7
log_interval = 1
threads = 1
"""


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def expected_scalars(metrics):
    scalars = {}
    for line in metrics.read_text().splitlines():
        event = json.loads(line)
        if "step" not in event or event["event"] == "end":
            continue
        for key, value in event.items():
            if key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool):
                scalars.setdefault(f"{event['event']}/{key}", []).append((event["step"], float32(value)))
    return scalars


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default="build/depthroute")
    program = str(parser.parse_args().program.resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "run.toml").write_text(CONFIG)
        (folder / "text.txt").write_text("\n\n".join(f"Entry {i} of the text, about {i * 7919 % 1000} things and {i % 13} more." for i in range(800)))
        quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([program, "prepare", "text.txt", "--out", "data", "--vocabulary-size", "300", "--split", "0.8,0.1,0.1"], check=True, **quiet)
        train = [program, "train", "run.toml", "--out", "run"]
        killed = subprocess.Popen(train, **quiet)
        metrics = folder / "run" / "metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count("\n") < 20:
            time.sleep(0.005)
        killed.kill()
        killed.wait()
        subprocess.run(train, check=True, **quiet)

        accumulator = event_accumulator.EventAccumulator(str(folder / "run" / "tensorboard"), size_guidance={"scalars": 0})
        accumulator.Reload()
        found = {tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}
        expected = expected_scalars(metrics)
        files = len(list((folder / "run" / "tensorboard").iterdir()))
        assert files == 2, f"{files} event files"
        assert found == expected, "\n".join(f"{tag}: {found.get(tag)} and {expected.get(tag)}" for tag in {*found, *expected} if found.get(tag) != expected.get(tag))
        print(f"{len(found)} tags, {sum(map(len, found.values()))} values, {files} files: all as in metrics.jsonl")
        shutil.rmtree(folder / "run")


if __name__ == "__main__":
    main()
