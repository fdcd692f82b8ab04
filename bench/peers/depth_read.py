"""The depth read of two routes against what PyTorch users have today, in one process, on the same shapes.

  python bench/peers/depth_read.py [--tokens 4096] [--width 576] [--sources 9] [--routes 2] [--rounds 7] [--threads 2] [--json]

Candidates: this project's operators (depth_read, and DepthMemory with its shared accumulators); the formula in eager PyTorch; the
same compiled by torch.compile; the formula on a stack of the sources, as flash-linear-attention's reference form has it; and
AttnResOperator of the package attn-res, one a route, since it knows no routes.
"""
import argparse
import json

import torch
from attn_res.main import AttnResOperator

from timing import interleave, summary


def formula(sources, queries, key_weight, eps=1e-6):
    norms = [torch.rsqrt(s.square().mean(-1, keepdim=True) + eps) for s in sources]
    mixtures = []
    for query in queries:
        scores = torch.cat([(s * n * key_weight * query).sum(-1, keepdim=True) for s, n in zip(sources, norms)], -1)
        weights = scores.softmax(-1)
        mixtures.append(sum(weights[..., i:i + 1] * s for i, s in enumerate(sources)))
    return mixtures


def stacked(sources, queries, key_weight, eps=1e-6):
    values = torch.stack(sources)
    keys = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + eps) * key_weight
    weights = torch.einsum("rd,knd->rkn", torch.stack(queries), keys).softmax(1)
    return list(torch.einsum("rkn,knd->rnd", weights, values))


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("tokens", 4096), ("width", 576), ("sources", 9), ("routes", 2), ("rounds", 7), ("threads", 2)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--library", default="build/libdepthroute_operators.so")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.ops.load_library(options.library)
    torch.manual_seed(1)

    sources = [torch.randn(options.tokens, options.width).requires_grad_() for _ in range(options.sources)]
    queries = [(torch.randn(options.width) / options.width**0.5).requires_grad_() for _ in range(options.routes)]
    key_weight = torch.ones(options.width).requires_grad_()
    peers = [AttnResOperator(options.width) for _ in queries]
    for peer, query in zip(peers, queries):
        peer.pseudo_query = torch.nn.Parameter(query.detach().clone())

    def of_package():
        together = torch.stack(sources)[:, None]  # [K, B, T, d]
        return [peer(together)[0] for peer in peers]

    def memory():
        held = torch.classes.depthroute.DepthMemory(1, 1e-6)
        for source in sources:
            held.append(source)
        return held.read(queries, key_weight)

    compiled, compiled_stacked = torch.compile(formula), torch.compile(stacked)
    forms = {
        "depthroute": lambda: torch.ops.depthroute.depth_read(sources, queries, key_weight),
        "depthroute, DepthMemory": memory,
        "eager": lambda: formula(sources, queries, key_weight),
        "eager, stacked": lambda: stacked(sources, queries, key_weight),
        "torch.compile": lambda: compiled(sources, queries, key_weight),
        "torch.compile, stacked": lambda: compiled_stacked(sources, queries, key_weight),
        "attn-res 0.1.0": of_package,
    }
    expected = forms["eager"]()
    for name, form in forms.items():
        for got, wanted in zip(form(), expected):
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4, msg=lambda text: name + ": " + text)

    def forward_only(form):
        def call():
            with torch.no_grad():
                form()
        return call

    leaves = [*sources, *queries, key_weight]
    upstream = [torch.randn(options.tokens, options.width) for _ in queries]

    def with_backward(form):
        def call():
            torch.autograd.grad(form(), leaves, upstream, allow_unused=True)
        return call

    def package_with_backward():
        torch.autograd.grad(of_package(), sources + [p.pseudo_query for p in peers], upstream)

    results = {}
    for phase, wrap in (("forward", forward_only), ("forward and backward", with_backward)):
        calls = {name: wrap(form) for name, form in forms.items()}
        if phase != "forward":
            calls["attn-res 0.1.0"] = package_with_backward
        results[phase] = summary(interleave(calls, options.rounds, 0.05), "depthroute, DepthMemory")
    if options.json:
        print(json.dumps({"torch": torch.__version__, "threads": options.threads, "tokens": options.tokens, "width": options.width,
                          "sources": options.sources, "routes": options.routes, "results": results}))
        return
    for phase, rows in results.items():
        print(phase)
        for row in rows:
            print(f"  {row['name']:26} {row['median'] * 1e3:10.2f} ms  {row['over_ours']:8.2f} x")


if __name__ == "__main__":
    main()
