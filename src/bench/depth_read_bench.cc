#include "bench/depth_read_bench.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/depth_memory.h"
#include "ops/depth_read.h"
#include "ops/depth_read_fused.h"

namespace depthroute {
namespace {

constexpr double kEps = 1e-6;

struct Operands {
  std::vector<at::Tensor> sources, queries;
  at::Tensor norm_weight;

  explicit Operands(const DepthReadShape& shape) {
    at::manual_seed(1);
    for (int64_t i = 0; i < shape.sources; ++i)
      sources.push_back(at::randn({shape.tokens, shape.width}).set_requires_grad(true));
    for (int64_t r = 0; r < shape.routes; ++r) queries.push_back(at::randn({shape.width}).set_requires_grad(true));
    norm_weight = at::ones({shape.width}).set_requires_grad(true);
  }

  void forget_gradients() {
    for (at::Tensor& source : sources) source.mutable_grad() = at::Tensor();
    for (at::Tensor& query : queries) query.mutable_grad() = at::Tensor();
    norm_weight.mutable_grad() = at::Tensor();
  }
};

}  // namespace

DepthReadFigures bench_depth_read(const DepthReadShape& shape, int64_t rounds) {
  Operands operands(shape);
  int64_t values = shape.sources * shape.tokens * shape.width;
  at::Tensor buffer = at::ones({values}), other = at::empty({values});
  at::Tensor upstream = at::randn({shape.tokens, shape.width});
  std::vector<at::Tensor> upstreams(static_cast<size_t>(shape.routes), upstream);

  auto forward = [&](bool fused) {
    at::NoGradGuard no_grad;
    return fused ? depth_read_fused(operands.sources, operands.queries, operands.norm_weight, {}, shape.heads, kEps)
                 : depth_read_reference(operands.sources, operands.queries, operands.norm_weight, {}, shape.heads,
                                        kEps);
  };
  auto forward_backward = [&] {
    operands.forget_gradients();
    DepthRead read =
        depth_read_fused(operands.sources, operands.queries, operands.norm_weight, {}, shape.heads, kEps);
    torch::autograd::backward(read.mixtures, upstreams);
  };

  // Four sublayers, of R routes and one in turn, over the same completed sources.
  auto block = [&](bool planned) {
    at::NoGradGuard no_grad;
    DepthMemory memory(shape.heads, kEps, Implementation::kFused);
    for (const at::Tensor& source : operands.sources) memory.append(source);
    std::vector<PlannedRead> reads;
    for (int i = 0; i < 4; ++i) {
      std::vector<at::Tensor> queries =
          i % 2 == 0 ? operands.queries : std::vector<at::Tensor>{operands.queries[0]};
      reads.push_back({queries, operands.norm_weight});
    }
    if (planned) memory.plan(reads);
    for (const PlannedRead& item : reads) {
      memory.read(item.queries, item.key_norm_weight);
      memory.set_partial(upstream);
    }
  };

  std::vector<double> read, write, copy, fused, reference, both, one_phase, two_phases;
  for (int64_t round = -1; round < rounds; ++round) {  // the first one warms up
    double sink = 0;
    double seconds[] = {seconds_of([&] { sink = buffer.sum().item<double>(); }),
                        seconds_of([&] { other.fill_(sink > 0 ? 1 : 2); }),
                        seconds_of([&] { other.copy_(buffer); }),
                        seconds_of([&] { forward(true); }),
                        seconds_of([&] { forward(false); }),
                        seconds_of(forward_backward),
                        seconds_of([&] { block(false); }),
                        seconds_of([&] { block(true); })};
    if (round < 0) continue;
    size_t i = 0;
    for (std::vector<double>* list : {&read, &write, &copy, &fused, &reference, &both, &one_phase, &two_phases})
      list->push_back(seconds[i++]);
  }
  DepthReadFigures figures;
  figures.shape = shape;
  figures.source_bytes = static_cast<double>(values) * sizeof(float);
  figures.written_bytes = static_cast<double>(shape.routes * shape.tokens * shape.width) * sizeof(float);
  figures.read = spread_of(read);
  figures.write = spread_of(write);
  figures.copy = spread_of(copy);
  figures.forward = spread_of(fused);
  figures.forward_reference = spread_of(reference);
  figures.forward_backward = spread_of(both);
  figures.block_one_phase = spread_of(one_phase);
  figures.block_two_phases = spread_of(two_phases);
  return figures;
}

Json depth_read_figures_to_json(const DepthReadFigures& figures) {
  const DepthReadShape& shape = figures.shape;
  const std::vector<int64_t> block = {shape.routes, 1, shape.routes, 1};
  double forward = figures.forward.median;
  return json_object({{"tokens", shape.tokens},
                      {"width", shape.width},
                      {"sources", shape.sources},
                      {"routes", shape.routes},
                      {"heads", shape.heads},
                      {"bytes_read", figures.source_bytes},
                      {"bytes_written", figures.written_bytes},
                      {"read_seconds", spread_to_json(figures.read)},
                      {"write_seconds", spread_to_json(figures.write)},
                      {"copy_seconds", spread_to_json(figures.copy)},
                      {"forward_seconds", spread_to_json(figures.forward)},
                      {"forward_backward_seconds", spread_to_json(figures.forward_backward)},
                      {"reference_forward_seconds", spread_to_json(figures.forward_reference)},
                      {"gigabytes_per_second", (figures.source_bytes + figures.written_bytes) / forward / 1e9},
                      {"share_of_roofline", figures.roofline_seconds() / forward},
                      {"forward_over_copy", forward / figures.copy.median},
                      {"block_one_phase_seconds", spread_to_json(figures.block_one_phase)},
                      {"block_two_phases_seconds", spread_to_json(figures.block_two_phases)},
                      {"block_one_phase_rows", one_phase_rows(shape.sources, block)},
                      {"block_two_phases_rows", two_phase_rows(shape.sources, block)},
                      {"reference_over_forward", figures.forward_reference.median / forward}});
}

}  // namespace depthroute
