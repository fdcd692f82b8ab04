"""The operators of build/libdepthroute_operators.so in Python: against the formula, gradcheck, torch.library.opcheck, torch.compile.

  python tests/interop/torch_operators.py [build/libdepthroute_operators.so]

Needs the PyTorch version that the library was built with (tests/interop/requirements.txt).
"""
import sys

import torch


def reference(sources, queries, key_weight, output_weight=None, heads=1, eps=1e-6):
    stacked = torch.stack(sources)  # [K, ..., d]
    split = stacked.unflatten(-1, (heads, -1))
    keys = split * torch.rsqrt(split.square().mean(-1, keepdim=True) + eps)
    mixtures = []
    for query in queries:
        scores = (keys * (query * key_weight).view(heads, -1)).sum(-1, keepdim=True)
        mixture = (scores.softmax(0) * split).sum(0).flatten(-2)
        if output_weight is not None:
            mixture = mixture * torch.rsqrt(mixture.square().mean(-1, keepdim=True) + eps) * output_weight
        mixtures.append(mixture)
    return mixtures


def make(dtype, routes=2, normalised=True, width=24):
    generator = torch.Generator().manual_seed(5)

    def draw(*shape):
        return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()

    return ([draw(2, 7, width) for _ in range(5)], [draw(width) for _ in range(routes)], draw(width),
            draw(width) if normalised else None)


def leaves_of(arguments):
    sources, queries, key_weight, output_weight = arguments
    return [*sources, *queries, key_weight] + ([output_weight] if output_weight is not None else [])


def gradients(mixtures, leaves):
    return torch.autograd.grad(sum((m * (r + 1)).sin().sum() for r, m in enumerate(mixtures)), leaves)


def main():
    torch.ops.load_library(sys.argv[1] if len(sys.argv) > 1 else "build/libdepthroute_operators.so")
    read = torch.ops.depthroute.depth_read
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 2e-4)):
        for heads in (1, 3):
            for normalised in (False, True):
                arguments = make(dtype, normalised=normalised)
                leaves = leaves_of(arguments)
                expected, actual = reference(*arguments, heads), read(*arguments, heads)
                torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
                torch.testing.assert_close(gradients(actual, leaves), gradients(expected, leaves), rtol=tolerance,
                                           atol=tolerance)
    arguments = make(torch.bfloat16)  # stored in bfloat16, computed in float32
    wide = ([s.detach().float() for s in arguments[0]], [q.detach().float() for q in arguments[1]], arguments[2].detach().float(),
            arguments[3].detach().float())
    for got, expected in zip(read(*arguments), reference(*wide)):
        torch.testing.assert_close(got, expected.bfloat16(), rtol=1e-2, atol=1e-2)
    assert all(g.dtype == torch.bfloat16 for g in gradients(read(*arguments), leaves_of(arguments)))
    print("equals the formula")

    arguments = make(torch.float64, width=6)
    leaves = leaves_of(arguments)
    assert torch.autograd.gradcheck(lambda *x: tuple(read(x[:5], x[5:7], x[7], x[8], 2)), leaves)
    print("gradcheck passed")

    torch.library.opcheck(read, (*make(torch.float64), 2),
                          test_utils=("test_schema", "test_autograd_registration", "test_faketensor",
                                      "test_aot_dispatch_dynamic"))
    print("opcheck passed")

    def block(sources, queries, key_weight, output_weight):
        attention, value = read([s.tanh() for s in sources], queries, key_weight, output_weight, 1)
        return attention * 2 + value

    compiled = torch.compile(block, fullgraph=True)
    for dtype in (torch.float32, torch.float64):
        arguments = make(dtype)
        leaves = leaves_of(arguments)
        expected, actual = block(*arguments), compiled(*arguments)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(gradients([actual], leaves), gradients([expected], leaves))
    print("torch.compile traces through, forward and backward")

    sources, queries, key_weight, _ = make(torch.float64)
    memory = torch.classes.depthroute.DepthMemory(1, 1e-6)
    for source in sources[:4]:
        memory.append(source)
    memory.set_partial(sources[4])
    leaves = [*sources, *queries, key_weight]
    got = [m for _ in range(3) for m in memory.read(queries, key_weight)]  # three reads share the accumulators
    expected = [m for _ in range(3) for m in reference(sources, queries, key_weight)]
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradients(got, leaves), gradients(expected, leaves), rtol=1e-10, atol=1e-10)
    print("DepthMemory equals the formula")


if __name__ == "__main__":
    main()
