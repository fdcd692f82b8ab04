#include "study/diagnostics.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>

#include "residual/depth_routes.h"
#include "study/depth_distributions.h"
#include "train/batches.h"

namespace depthroute {
namespace {

constexpr int64_t kMilestoneWindows = 32, kBatchWindows = 8;

// Sums over tokens and heads.
struct Sums {
  at::Tensor probability;  // [K]
  double entropy = 0, largest = 0, count = 0;

  void add(const at::Tensor& p) {
    at::Tensor sum = p.sum({0, 2});
    probability = probability.defined() ? probability + sum : sum;
    entropy += distribution_entropy(p).sum().item<double>();
    largest += p.amax(1).sum().item<double>();
    count += static_cast<double>(p.size(0) * p.size(2));
  }
};

class Collector {
 public:
  explicit Collector(const Transformer& model) : model_(model) {}

  DepthProbe probe() {
    return [this](const std::string& site, const std::string& role, const at::Tensor& probabilities) {
      at::Tensor p = probabilities.to(at::kDouble);
      if (!sums_.contains({site, role})) order_.emplace_back(site, role);
      sums_[{site, role}].add(p);
      if (role == "qk") qk_ = p;
      if (role == "v" && qk_.defined()) {
        divergence_[site] += jensen_shannon_divergence(qk_, p).sum().item<double>();
        qk_ = at::Tensor();
      }
    };
  }

  DepthDiagnostics result(int64_t tokens) const {
    DepthDiagnostics result;
    result.tokens = tokens;
    std::map<std::string, int64_t> layers = site_layers();
    for (const auto& key : order_) {
      const Sums& sums = sums_.at(key);
      at::Tensor mean = sums.probability / sums.count;
      const auto& [site, role] = key;
      result.reads.push_back(
          {.site = site,
           .kind = site == "model"          ? "output"
                   : site.ends_with(".mlp") ? "mlp"
                                            : "attention",
           .role = role,
           .layer = layers.at(site),
           .sources = model_.residual().source_names(site),
           .mean = std::vector<double>(mean.data_ptr<double>(), mean.data_ptr<double>() + mean.numel()),
           .entropy = sums.entropy / sums.count,
           .largest = sums.largest / sums.count});
      if (role == "v" && divergence_.contains(site))
        result.divergence.push_back(divergence_of(site, layers.at(site)));
    }
    return result;
  }

 private:
  LayerDivergence divergence_of(const std::string& site, int64_t layer) const {
    const Sums& qk = sums_.at({site, "qk"});
    const Sums& v = sums_.at({site, "v"});
    auto as_distribution = [](const Sums& sums) { return (sums.probability / sums.count).view({1, -1, 1}); };
    return {layer, divergence_.at(site) / v.count,
            jensen_shannon_divergence(as_distribution(qk), as_distribution(v)).item<double>()};
  }

  std::map<std::string, int64_t> site_layers() const {
    std::map<std::string, int64_t> layers = {{"model", -1}};
    for (int64_t layer = 0; layer < model_.config().layers; ++layer) {
      layers[layer_name(layer) + ".self_attn"] = layers[layer_name(layer) + ".mlp"] = layer;
    }
    return layers;
  }

  const Transformer& model_;
  std::vector<std::pair<std::string, std::string>> order_;
  std::map<std::pair<std::string, std::string>, Sums> sums_;
  std::map<std::string, double> divergence_;
  at::Tensor qk_;
};

double mean_over_layers(const std::vector<LayerDivergence>& layers, double LayerDivergence::*form) {
  double sum = 0;
  for (const LayerDivergence& layer : layers) sum += layer.*form;
  return layers.empty() ? 0 : sum / static_cast<double>(layers.size());
}

}  // namespace

double DepthDiagnostics::mean_per_token() const {
  return mean_over_layers(divergence, &LayerDivergence::per_token);
}
double DepthDiagnostics::mean_of_means() const {
  return mean_over_layers(divergence, &LayerDivergence::of_means);
}

int64_t for_first_windows(const TokenDataset& data, int64_t context, int64_t windows, int64_t batch_windows,
                          const std::function<void(const at::Tensor&, const at::Tensor&)>& each) {
  int64_t count = std::min(windows, window_count(data, context));
  if (count < 1) fail_input("the split has {} tokens, less than one window of {}", data.tokens(), context);
  for (int64_t first = 0; first < count; first += batch_windows) {
    std::vector<int64_t> numbers;
    for (int64_t i = first; i < std::min(count, first + batch_windows); ++i) numbers.push_back(i);
    Batch batch = read_windows(data, numbers, context);
    each(batch.token_ids, batch.targets);
  }
  return count * context;
}

DepthDiagnostics diagnose(const Transformer& model, const TokenDataset& data, int64_t windows,
                          int64_t batch_windows) {
  at::NoGradGuard no_grad;
  Collector collector(model);
  DepthProbe probe = collector.probe();
  return collector.result(
      for_first_windows(data, model.config().context, windows, batch_windows,
                        [&](const at::Tensor& token_ids, const at::Tensor&) { model.hidden(token_ids, probe); }));
}

Json diagnostics_to_json(const DepthDiagnostics& diagnostics) {
  if (diagnostics.reads.empty()) return Json::object();
  Json json = {{"diagnosed_tokens", diagnostics.tokens}, {"reads", Json::array()}};
  for (const DepthReadSummary& read : diagnostics.reads) {
    json["reads"].push_back({{"site", read.site},
                             {"layer", read.layer},
                             {"kind", read.kind},
                             {"role", read.role},
                             {"sources", read.sources},
                             {"mean", read.mean},
                             {"entropy", read.entropy},
                             {"largest", read.largest}});
  }
  if (diagnostics.divergence.empty()) return json;
  Json layers = Json::array();
  for (const LayerDivergence& layer : diagnostics.divergence) {
    layers.push_back({{"layer", layer.layer}, {"per_token", layer.per_token}, {"of_means", layer.of_means}});
  }
  json["js_divergence"] = {{"unit", "nats"},
                           {"layers", layers},
                           {"mean_per_token", diagnostics.mean_per_token()},
                           {"mean_of_means", diagnostics.mean_of_means()}};
  return json;
}

std::function<Json(const Transformer&, const TokenDataset&)> milestone_diagnostics() {
  return [](const Transformer& model, const TokenDataset& validation) {
    // Every variant with depth reads has one in front of the first MLP.
    if (model.residual().source_names(mlp_site(0)).empty()) return Json::object();
    return diagnostics_to_json(diagnose(model, validation, kMilestoneWindows, kBatchWindows));
  };
}

}  // namespace depthroute
