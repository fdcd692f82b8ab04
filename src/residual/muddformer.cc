// MUDDFormer (arXiv 2502.12170), multiway dynamic dense connections: behind each layer, four streams (for queries, keys,
// values and the residual of the next layer; one behind the last layer) are weighted sums of the embedding X_0 and all
// layers' outputs X_1, .., with weights that a small network computes from the newest output y for each token:
//
//   w_s = W2 gelu(W1 rmsnorm(y))|_s + bias_s        x^s = sum_j w_{s,j} X_j
//
// Layer: h = x^r + attention(norm_q(x^q), norm_k(x^k), norm_v(x^v)); y = h + mlp(norm(h)). Layer 0 reads the embedding
// everywhere and has one norm. It starts as the ordinary residual: W2 zero, bias 1 for the newest source.
#include <ATen/ATen.h>

#include <cmath>

#include "io/error.h"
#include "residual/depth_routes.h"
#include "residual/sublayer_norm.h"
#include "residual/variants.h"

namespace depthroute {
namespace {

const char* const kStreams[] = {"q", "k", "v"};  // those with a norm of their own; the fourth is the residual

std::string dense_name(int64_t layer, const char* suffix) {
  return layer_name(layer) + ".dense." + suffix;
}

std::string stream_norm_name(int64_t layer, const char* stream) {
  return layer_name(layer) + ".input_layernorm." + stream + ".weight";
}

// Behind layer `layer` of `layers`.
struct DenseShape {
  int64_t sources, streams, hidden;

  DenseShape(int64_t layer, int64_t layers) : sources(layer + 2), streams(layer + 1 < layers ? 4 : 1) {
    int64_t least = streams * sources * (streams == 1 ? 4 : 1);
    hidden = (least / 64 + 1) * 64;
  }
};

class MuddFormerStream : public ResidualStream {
 public:
  MuddFormerStream(const ParameterStore& parameters, const ResidualConfig& config, const ResidualShape& shape,
                   const at::Tensor& embedding)
      : parameters_(parameters),
        norm_(parameters, config, shape),
        memory_(1, shape.norm_eps, config.implementation),
        streams_(4, embedding) {
    memory_.append(embedding);
  }

  AttentionInputs attention_inputs(int64_t layer) override {
    if (layer == 0) {
      at::Tensor h = norm_(streams_[0], input_norm_name(layer));
      return {h, h, h};
    }
    auto input = [&](size_t s) { return norm_(streams_[s], stream_norm_name(layer, kStreams[s])); };
    return {input(0), input(1), input(2)};
  }
  void write_attention(int64_t, const at::Tensor& output) override { h_ = streams_[3] + output; }
  MlpInputs mlp_inputs(int64_t layer) override {
    at::Tensor h = norm_(h_, mlp_norm_name(layer));
    return {h, h};
  }
  void write_mlp(int64_t layer, const at::Tensor& output) override {
    at::Tensor y = h_ + output;
    memory_.append(y);
    streams_ = memory_.mix(dense_weights(layer, y));
  }
  at::Tensor output() override { return streams_[0]; }

 private:
  // [N, C, K]
  at::Tensor dense_weights(int64_t layer, const at::Tensor& y) const {
    at::Tensor hidden = at::linear(norm_.without_weight(y), parameters_.get(dense_name(layer, "w1.weight")));
    at::Tensor flat = at::linear(at::gelu(hidden), parameters_.get(dense_name(layer, "w2.weight")));
    const at::Tensor& bias = parameters_.get(dense_name(layer, "bias"));
    return flat.reshape({-1, bias.size(0), bias.size(1)}) + bias;
  }

  const ParameterStore& parameters_;
  SublayerNorm norm_;
  DepthMemory memory_;
  std::vector<at::Tensor> streams_;  // q, k, v, r; one behind the last layer
  at::Tensor h_;
};

class MuddFormer : public Residual {
 public:
  MuddFormer(ResidualConfig config, const ResidualShape& shape) : config_(std::move(config)), shape_(shape) {}

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      if (layer == 0) {
        specs.push_back({input_norm_name(layer), {shape_.width}, Initialisation::kOne});
      } else {
        for (const char* stream : kStreams)
          specs.push_back({stream_norm_name(layer, stream), {shape_.width}, Initialisation::kOne});
      }
      specs.push_back({mlp_norm_name(layer), {shape_.width}, Initialisation::kOne});
      DenseShape dense(layer, shape_.layers);
      double deviation = 1 / std::sqrt(static_cast<double>(shape_.width));
      specs.push_back(
          {dense_name(layer, "w1.weight"), {dense.hidden, shape_.width}, Initialisation::kNormal, deviation});
      specs.push_back(
          {dense_name(layer, "w2.weight"), {dense.streams * dense.sources, dense.hidden}, Initialisation::kZero});
      specs.push_back({dense_name(layer, "bias"), {dense.streams, dense.sources}, Initialisation::kNewestSource});
    }
    return specs;
  }

  std::unique_ptr<ResidualStream> begin(const ParameterStore& parameters, const at::Tensor& embedding,
                                        const DepthProbe&) const override {
    return std::make_unique<MuddFormerStream>(parameters, config_, shape_, embedding);
  }

  ResidualCost cost() const override {
    auto width = static_cast<double>(shape_.width);
    ResidualCost cost;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      DenseShape dense(layer, shape_.layers);
      auto sources = static_cast<double>(dense.sources), streams = static_cast<double>(dense.streams),
           hidden = static_cast<double>(dense.hidden);
      cost.flops += (2 + 2 * sources * streams) * width;       // two sums, and the mix
      cost.flops += 2 * hidden * (width + streams * sources);  // the small network
      cost.values += (2 * 3 + sources + streams) * width;
      cost.values += 2 * width + 2 * hidden + 2 * streams * sources;  // its input, hidden values and weights
    }
    return cost;
  }

  std::vector<std::string> source_names(const std::string&) const override { return {}; }

 private:
  ResidualConfig config_;
  ResidualShape shape_;
};

}  // namespace

std::unique_ptr<Residual> make_muddformer(const ResidualConfig& config, const ResidualShape& shape) {
  check_depth_reads(config, shape, shape.layers + 1);
  return std::make_unique<MuddFormer>(config, shape);
}

}  // namespace depthroute
