// golden_check FILE...: compares every implementation with stored fp64 values of depth reads
// (depth_read_*.safetensors) and of whole models (model_*.safetensors), forward and gradients, in fp64 and in fp32.
// The format is described in docs/file_formats.md.
//
// An error is the largest difference relative to the largest magnitude of the stored tensor, absolute where that is
// below 1e-9.
// Exit code 1 where an fp64 error exceeds 1e-9 or an fp32 error 2e-4, or where a variant is unknown; 2 where a file
// is unreadable.
#include <ATen/ATen.h>

#include <cstdio>

#include "io/error.h"
#include "io/format.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/tensor_file.h"
#include "model/transformer.h"
#include "ops/depth_memory.h"

namespace depthroute {
namespace {

constexpr double kTolerance64 = 1e-9, kTolerance32 = 2e-4, kAbsoluteBelow = 1e-9;

struct Mode {
  at::ScalarType dtype;
  Implementation implementation;

  std::string name() const {
    return format_text("{} {}", implementation == Implementation::kReference ? "reference" : "fused",
                       dtype == at::kDouble ? "fp64" : "fp32");
  }
  double tolerance() const { return dtype == at::kDouble ? kTolerance64 : kTolerance32; }
};

const std::vector<Mode> kModes = {{at::kDouble, Implementation::kReference},
                                  {at::kFloat, Implementation::kReference},
                                  {at::kDouble, Implementation::kFused},
                                  {at::kFloat, Implementation::kFused}};

// Compares tensors of one file under one mode with what is stored.
class Comparison {
 public:
  Comparison(const SafetensorsFile& file, const Mode& mode) : file_(file), mode_(mode) {}

  at::Tensor input(const std::string& name) const { return read_tensor(file_, name).to(mode_.dtype); }
  at::Tensor leaf(const std::string& name) const { return input(name).requires_grad_(); }

  // An undefined tensor stands for zeros: the gradient of a parameter that nothing used.
  void expect(const std::string& name, const at::Tensor& actual) {
    compared_.push_back(name);
    at::Tensor expected = read_tensor(file_, name).to(at::kDouble);
    at::Tensor value = actual.defined() ? actual.detach().to(at::kDouble) : at::zeros_like(expected);
    if (value.sizes() != expected.sizes()) {
      report(name,
             format_text("shape [{}], expected [{}]", join_text(value.sizes(), ", "),
                         join_text(expected.sizes(), ", ")),
             false);
      return;
    }
    double error = 0;
    if (expected.numel() > 0) {
      double scale = expected.abs().max().item<double>();
      error = (value - expected).abs().max().item<double>();
      if (scale >= kAbsoluteBelow) error /= scale;
    }
    report(name, format_text("{:.2e}", error), error <= mode_.tolerance());  // false for NaN
  }

  // Every stored result must have been compared: a tensor that nobody computes is a failure.
  bool finish(const std::vector<std::string>& inputs) {
    for (const auto& [name, entry] : file_.entries()) {
      bool known = std::find(compared_.begin(), compared_.end(), name) != compared_.end() ||
                   std::find(inputs.begin(), inputs.end(), name) != inputs.end() || name.starts_with("param.");
      if (!known) report(name, "not computed", false);
    }
    return passed_;
  }

 private:
  void report(const std::string& name, const std::string& text, bool good) {
    std::printf("  %-16s %-64s %s%s\n", mode_.name().c_str(), name.c_str(), text.c_str(), good ? "" : "  FAILED");
    passed_ = passed_ && good;
  }

  const SafetensorsFile& file_;
  const Mode& mode_;
  std::vector<std::string> compared_;
  bool passed_ = true;
};

double metadata_number(const SafetensorsFile& file, const std::string& key) {
  auto found = file.metadata().find(key);
  if (found == file.metadata().end()) fail_input("'{}': its metadata has no '{}'", file.path().string(), key);
  try {
    return std::stod(found->second);
  } catch (const std::exception&) {
    fail_input("'{}': its metadata '{}' is '{}', not a number", file.path().string(), key, found->second);
  }
}

bool check_depth_read_file(const SafetensorsFile& file, const Mode& mode) {
  Comparison comparison(file, mode);
  std::vector<at::Tensor> sources, queries;
  for (const at::Tensor& source : comparison.input("sources").unbind(0))
    sources.push_back(source.clone().requires_grad_());
  for (const at::Tensor& query : comparison.input("queries").unbind(0))
    queries.push_back(query.clone().requires_grad_());
  at::Tensor weight = comparison.leaf("norm_weight"), output_weight;
  if (file.contains("output_norm_weight")) output_weight = comparison.leaf("output_norm_weight");

  auto heads = static_cast<int64_t>(metadata_number(file, "heads"));
  double eps = metadata_number(file, "eps");
  DepthRead read = mode.implementation == Implementation::kReference
                       ? depth_read_reference(sources, queries, weight, output_weight, heads, eps)
                       : depth_read_fused(sources, queries, weight, output_weight, heads, eps);
  at::Tensor mixtures = at::stack(read.mixtures);
  comparison.expect("mixtures", mixtures);
  comparison.expect("probs", read.probabilities);
  mixtures.backward(comparison.input("grad_mixtures"));

  auto stack_gradients = [](const std::vector<at::Tensor>& leaves) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& leaf : leaves)
      gradients.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf));
    return at::stack(gradients);
  };
  comparison.expect("grad_sources", stack_gradients(sources));
  comparison.expect("grad_queries", stack_gradients(queries));
  comparison.expect("grad_norm_weight", weight.grad());
  if (output_weight.defined()) comparison.expect("grad_output_norm_weight", output_weight.grad());
  return comparison.finish({"sources", "queries", "norm_weight", "output_norm_weight", "grad_mixtures"});
}

ModelConfig golden_config(const SafetensorsFile& file) {
  std::string where = format_text("'{}'", file.path().string());
  auto text = file.metadata().find("config");
  if (text == file.metadata().end()) fail_input("{}: its metadata has no 'config'", where);
  Json json = Json::parse(text->second, nullptr, false);
  if (json.is_discarded()) fail_input("{}: its metadata 'config' is not JSON", where);
  ModelConfig config;
  config.vocabulary = json_get<int64_t>(json, "vocab_size", where);
  config.width = json_get<int64_t>(json, "hidden_size", where);
  config.mlp_hidden = json_get<int64_t>(json, "intermediate_size", where);
  config.layers = json_get<int64_t>(json, "num_hidden_layers", where);
  config.heads = json_get<int64_t>(json, "num_attention_heads", where);
  config.norm_eps = json_get<double>(json, "rms_norm_eps", where);
  config.rope_theta = json_get<double>(json, "rope_theta", where);
  config.context = file.entry("input_ids").shape.back();
  config.residual = named_residual_config(json_get<std::string>(json, "variant", where), config.layers);
  if (config.residual.layers_per_block > 0) {
    config.residual.layers_per_block = json_get<int64_t>(json, "layers_per_block", where);
  }
  if (json.contains("depth_heads")) config.residual.depth_heads = json_get<int64_t>(json, "depth_heads", where);
  return config;
}

bool check_model_file(const SafetensorsFile& file, const Mode& mode) {
  ModelConfig config = golden_config(file);
  config.residual.implementation = mode.implementation;
  Comparison comparison(file, mode);
  ParameterStore parameters;
  for (const ParameterSpec& spec : model_parameters(config))
    parameters.add(spec.name, comparison.leaf("param." + spec.name));
  Transformer model(config, std::move(parameters));

  std::map<std::string, at::Tensor> probabilities;
  at::Tensor token_ids = read_tensor(file, "input_ids"), targets = read_tensor(file, "targets");
  DepthProbe probe = [&](const std::string& site, const std::string& role, const at::Tensor& weights) {
    // [N, K, H] as [K, batch, T, H]
    probabilities[format_text("depth_probs.{}.{}", site, role)] =
        weights.unflatten(0, token_ids.sizes()).permute({2, 0, 1, 3}).contiguous();
  };
  comparison.expect("logits", model.logits(token_ids, probe));
  at::Tensor loss = model.loss_sum(token_ids, targets) / static_cast<double>(targets.numel());
  comparison.expect("loss", loss.reshape({1}));
  loss.backward();
  for (const auto& [name, entry] : file.entries()) {
    if (name.starts_with("depth_probs.")) comparison.expect(name, probabilities[name]);
  }
  for (const auto& [name, parameter] : model.parameters().items()) {
    if (file.contains("grad." + name)) comparison.expect("grad." + name, parameter.grad());
  }
  return comparison.finish({"input_ids", "targets"});
}

bool check_file(const std::string& path) {
  SafetensorsFile file{std::filesystem::path(path)};
  bool depth_read = file.contains("sources"), passed = true;
  for (const Mode& mode : kModes) {
    passed = (depth_read ? check_depth_read_file(file, mode) : check_model_file(file, mode)) && passed;
  }
  return passed;
}

// A file that cannot be read does not keep the others from being checked; the worst exit code counts.
int check_files(const std::vector<std::string>& paths) {
  int code = 0;
  for (const std::string& path : paths) {
    std::printf("%s\n", path.c_str());
    try {
      bool passed = check_file(path);
      std::printf("%s: %s\n", path.c_str(), passed ? "passed" : "FAILED");
      if (!passed) code = std::max(code, 1);
    } catch (const UnknownVariantError& error) {
      std::fflush(stdout);
      std::fprintf(stderr, "golden_check: '%s': %s\n", path.c_str(), error.what());
      code = std::max(code, 1);
    } catch (const std::exception& error) {
      std::fflush(stdout);
      std::fprintf(stderr, "golden_check: %s\n", error.what());
      code = 2;
    }
  }
  return code;
}

}  // namespace
}  // namespace depthroute

int main(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) == "--help") {
    std::fprintf(argc < 2 ? stderr : stdout,
                 "usage: golden_check FILE...\nExample: golden_check tests/golden/*.safetensors\n");
    return argc < 2 ? 2 : 0;
  }
  return depthroute::check_files({argv + 1, argv + argc});
}
