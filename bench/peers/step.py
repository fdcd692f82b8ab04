"""A training step of the S preset with the standard residual (120 M parameters, 1 x 1024 tokens, float32) against the same model in
PyTorch, eager and compiled, in one run: forward, backward, clipping, fused AdamW.

  python bench/peers/step.py [--preset s] [--rounds 3] [--threads 2] [--json]

The program's step is timed by `depthroute bench step` in turn with the others.
"""
import argparse
import json
import subprocess
import time

import torch
import torch.nn.functional as F

from timing import summary

PRESETS = {"s": (16, 576, 9, 2880, 32768, 1024), "mini": (8, 128, 2, 640, 4096, 256)}


class Layer(torch.nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        linear = lambda a, b: torch.nn.Linear(a, b, bias=False)
        self.q, self.k, self.v, self.o = (linear(width, width) for _ in range(4))
        self.gate, self.up, self.down = linear(width, hidden), linear(width, hidden), linear(hidden, width)
        self.first, self.second = torch.nn.RMSNorm(width, 1e-6), torch.nn.RMSNorm(width, 1e-6)

    def forward(self, x, cosine, sine):
        y = self.first(x)

        def split(z):
            return z.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        def rotate(z):
            half = z.shape[-1] // 2
            return z * cosine + torch.cat((-z[..., half:], z[..., :half]), -1) * sine

        mixed = F.scaled_dot_product_attention(rotate(split(self.q(y))), rotate(split(self.k(y))), split(self.v(y)), is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(-2))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(torch.nn.Module):
    def __init__(self, layers, width, heads, hidden, vocabulary, context):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.layers = torch.nn.ModuleList(Layer(width, heads, hidden) for _ in range(layers))
        self.norm = torch.nn.RMSNorm(width, 1e-6)
        torch.nn.init.normal_(self.embedding.weight, std=0.02)
        d = width // heads
        angles = torch.arange(context)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        return F.cross_entropy((self.norm(x) @ self.embedding.weight.T).flatten(0, 1), targets.flatten())


def make_step(sizes, compiled):
    torch.manual_seed(1)
    model = Model(*sizes)
    call = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids = torch.randint(0, sizes[4], (1, sizes[5]))
    targets = torch.randint(0, sizes[4], (1, sizes[5]))

    def step():
        optimizer.zero_grad(set_to_none=True)
        call(ids, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", choices=PRESETS, default="s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--program", default="build/depthroute")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    def ours():
        command = [options.program, "bench", "step", "--preset", options.preset, "--variants", "standard", "--rounds", "1", "--steps", "2",
                   "--threads", str(options.threads), "--json"]
        result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return result["variants"][0]["step_seconds"]["median"]

    steps = {"eager": make_step(PRESETS[options.preset], False), "torch.compile": make_step(PRESETS[options.preset], True)}
    for step in steps.values():
        step()  # warms up, compiles
    seconds = {name: [] for name in ("depthroute", *steps)}
    for _ in range(options.rounds):
        seconds["depthroute"].append(ours())
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            step()
            seconds[name].append((time.perf_counter() - begin) / 2)
    rows = summary(seconds, "depthroute")
    if options.json:
        print(json.dumps({"torch": torch.__version__, "preset": options.preset, "threads": options.threads, "results": rows}))
        return
    for row in rows:
        print(f"{row['name']:16} {row['median']:8.3f} s a step  {row['over_ours']:6.2f} x")


if __name__ == "__main__":
    main()
