#include "model/initialisation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <bit>
#include <numbers>

namespace depthroute {
namespace {

// FNV-1a: the name's part of the key.
uint64_t hash_name(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return hash;
}

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection whose outputs for successive counters pass
// statistical tests.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t random_bits(uint64_t key, uint64_t counter) {
  return mix(key + (counter + 1) * 0x9e3779b97f4a7c15u);
}

// In (0, 1): never 0, whose logarithm Box and Muller's formula takes.
double uniform(uint64_t bits) {
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

void draw_normal(float* values, int64_t count, double standard_deviation, uint64_t key) {
  // Box and Muller: counters 2i and 2i+1 make values 2i and 2i+1.
  at::parallel_for(0, (count + 1) / 2, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      auto counter = static_cast<uint64_t>(2 * pair);
      double radius = standard_deviation * std::sqrt(-2 * std::log(uniform(random_bits(key, counter))));
      double angle = 2 * std::numbers::pi * uniform(random_bits(key, counter + 1));
      values[2 * pair] = static_cast<float>(radius * std::cos(angle));
      if (2 * pair + 1 < count) values[2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
    }
  });
}

}  // namespace

at::Tensor draw_parameter(const ParameterSpec& spec, uint64_t seed) {
  at::Tensor tensor = at::zeros(spec.shape, at::kFloat);
  switch (spec.initialisation) {
    case Initialisation::kZero:
      break;
    case Initialisation::kOne:
      tensor.fill_(1);
      break;
    case Initialisation::kNewestSource:
      tensor.select(-1, tensor.size(-1) - 1).fill_(1);
      break;
    case Initialisation::kNormal:
      draw_normal(tensor.data_ptr<float>(), tensor.numel(), spec.standard_deviation,
                  mix(hash_name(spec.name) ^ mix(seed + 0x9e3779b97f4a7c15u)));
      break;
  }
  return tensor;
}

}  // namespace depthroute
