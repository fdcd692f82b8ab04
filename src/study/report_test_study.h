// A synthetic study folder for the tests of the loader and the report: smooth loss curves with a known difference
// of every pair, depth reads, divergences and costs. Every number follows from the functions here, so tests can
// compute what the report must say.
#pragma once
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/json.h"
#include "io/test_folder.h"
#include "train/run_config.h"

namespace depthroute::testing {

namespace fs = std::filesystem;

inline const std::vector<std::string> kVariants = {"standard", "block_attnres", "rd_attnres"};
inline constexpr int64_t kTokensPerStep = 4096, kSteps = 1000, kLayers = 8;
inline constexpr int64_t kTotal = kTokensPerStep * kSteps, kHalf = kTotal / 2;

// The final losses differ by variant and seed; curves fall towards them as a power of the tokens.
inline double final_loss(const std::string& variant, int64_t seed) {
  const auto s = static_cast<double>(seed);
  const double base = 3.25 + 0.04 * std::sin(2.1 * s);
  if (variant == "standard") return base;
  if (variant == "block_attnres") return base - 0.12 + 0.01 * std::cos(1.3 * s);
  return base - 0.155 + 0.012 * std::cos(2.7 * s);
}

inline double loss_at(const std::string& variant, int64_t seed, int64_t step) {
  const double share = static_cast<double>(step) / kSteps;
  return final_loss(variant, seed) + 5 * std::exp(-14 * share) + 0.9 * (1 - share) * (1 - share);
}

inline double seconds_per_step(const std::string& variant) {
  return variant == "standard" ? 0.40 : variant == "block_attnres" ? 0.46 : 0.47;
}

// Counted from the model: each read across depth costs a little.
inline double flops_per_token(const std::string& variant) {
  return variant == "standard" ? 1.10e7 : variant == "block_attnres" ? 1.12e7 : 1.15e7;
}

inline Json depth_reads(const std::string& variant, int64_t seed, int64_t step) {
  Json reads = Json::array();
  const auto add = [&](const std::string& site, int64_t layer, const char* kind, const std::string& role,
                       int64_t sources, double tilt) {
    Json names = Json::array(), shares = Json::array();
    std::vector<double> weights;
    double total = 0;
    for (int64_t i = 0; i < sources; ++i) {
      const double growth = static_cast<double>(step) / kSteps;
      weights.push_back(
          std::exp(growth * (tilt * static_cast<double>(i) + 0.2 * std::sin(static_cast<double>(seed + 3 * i)))));
      total += weights.back();
    }
    double entropy = 0, largest = 0;
    for (int64_t i = 0; i < sources; ++i) {
      const bool partial = i == sources - 1 && std::string(kind) == "mlp";
      names.push_back(i == 0 ? "embedding" : partial ? "partial" : "block " + std::to_string(i));
      const double share = weights[i] / total;
      shares.push_back(share);
      entropy -= share * std::log(share);
      largest = std::max(largest, share);
    }
    Json read = {{"site", site}, {"layer", layer},   {"kind", kind},
                 {"role", role}, {"sources", names}, {"mean", shares}};
    read["entropy"] = entropy;
    read["largest"] = largest;
    reads.push_back(read);
  };
  const bool split = variant == "rd_attnres";
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string site = "model.layers." + std::to_string(layer);
    add(site + ".self_attn", layer, "attention", split ? "qk" : "qkv", layer + 1, 0.25);
    if (split) add(site + ".self_attn", layer, "attention", "v", layer + 1, -0.15);
    add(site + ".mlp", layer, "mlp", "mlp", layer + 2, 0.3);
  }
  add("model", kLayers, "output", "out", kLayers + 1, 0.4);
  return reads;
}

inline Json diagnostics_event(const std::string& variant, int64_t seed, int64_t step) {
  Json event = {{"event", "diagnostics"},
                {"step", step},
                {"tokens", step * kTokensPerStep},
                {"reads", depth_reads(variant, seed, step)}};
  if (variant != "rd_attnres") return event;
  Json layers = Json::array();
  double sum = 0;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const double value = 0.02 * static_cast<double>(layer) * (1 + 0.1 * static_cast<double>(seed)) *
                         static_cast<double>(step) / kSteps;
    layers.push_back({{"layer", layer}, {"per_token", value}, {"of_means", 0.6 * value}});
    sum += value;
  }
  event["js_divergence"] = {
      {"layers", layers}, {"mean_per_token", sum / kLayers}, {"mean_of_means", 0.6 * sum / kLayers}};
  return event;
}

inline std::string metrics_of(const std::string& variant, int64_t seed) {
  std::string lines;
  const auto add = [&](const Json& event) { lines += event.dump() + "\n"; };
  for (int64_t step = 25; step <= kSteps; step += 25) {
    const int64_t tokens = step * kTokensPerStep;
    const double seconds = static_cast<double>(step) * seconds_per_step(variant),
                 loss = loss_at(variant, seed, step);
    add({{"event", "train"},
         {"step", step},
         {"tokens", tokens},
         {"loss", loss - 0.02},
         {"learning_rate", 3e-3},
         {"gradient_norm", 0.8},
         {"seconds", seconds},
         {"tokens_per_second", kTokensPerStep / seconds_per_step(variant)}});
    if (step % 50 != 0) continue;
    const bool milestone = tokens == kHalf || tokens == kTotal;
    add({{"event", "validation"},
         {"step", step},
         {"tokens", tokens},
         {"milestone", milestone},
         {"loss", loss},
         {"perplexity", std::exp(loss)},
         {"bits_per_byte", loss / std::log(2.0) / 3.8},
         {"seconds", seconds},
         {"flops", flops_per_token(variant) * static_cast<double>(tokens)}});
    if (step % 250 == 0 && variant != "standard") add(diagnostics_event(variant, seed, step));
  }
  add({{"event", "memory"}, {"peak_bytes", variant == "standard" ? 812345678 : 901234567}});
  add({{"event", "end"}, {"step", kSteps}, {"tokens", kTotal}, {"reason", "finished"}, {"message", ""}});
  return lines;
}

inline fs::path run_folder(const fs::path& study, const std::string& variant, int64_t seed) {
  return study / "runs" / (variant + "-seed" + std::to_string(seed));
}

inline void write_run(const fs::path& study, const std::string& variant, int64_t seed) {
  const fs::path folder = run_folder(study, variant, seed);
  make_folder(folder);
  const int64_t extra = variant == "standard" ? 0 : variant == "block_attnres" ? 4352 : 5376;
  Json run = {{"format", "depthroute-run/1"},
              {"variant", variant},
              {"seed", seed},
              {"study_hash", ""}};  // see TestStudy::seal
  run.update(Json{{"config_hash", "c0ffee" + variant},
                  {"data_hash", "da7a0123456789ab"},
                  {"torch_version", "2.15.0"},
                  {"depthroute_version", "0.1.0"},
                  {"threads", 2},
                  {"machine", "x86-64, 2 cores, AVX-512"},
                  {"parameters", 3015808 + extra},
                  {"non_embedding_parameters", 2491520 + extra},
                  {"flops_per_token", 1.78e7 + static_cast<double>(extra)},
                  {"residual_bytes_per_token", variant == "standard" ? 16384.0 : 90112.0},
                  {"bytes_per_token", 3.8},
                  {"config", {{"variant", variant}, {"layers", kLayers}, {"width", 128}}}});
  write_json(folder / "run.json", run);
  write_file(folder / "metrics.jsonl", metrics_of(variant, seed));
  const double loss = final_loss(variant, seed) + 0.01;
  write_json(
      folder / "test.json",
      {{"loss", loss}, {"perplexity", std::exp(loss)}, {"bits_per_byte", loss / 2.634}, {"checkpoint", "final"}});
}

inline Json protocol_of(int64_t seed_count) {
  Json seeds = Json::array();
  for (int64_t seed = 1; seed <= seed_count; ++seed) seeds.push_back(seed);
  Json comparisons = Json::array();
  comparisons.push_back({{"variant", "rd_attnres"}, {"baseline", "block_attnres"}});
  comparisons.push_back({{"variant", "block_attnres"}, {"baseline", "standard"}});
  Json protocol = {
      {"name", "micro: routes by role"}, {"variants", kVariants}, {"seeds", seeds}, {"total_tokens", kTotal}};
  protocol["milestones"] = {kHalf, kTotal};
  protocol["comparisons"] = comparisons;
  protocol["decision"] = {{"metric", "validation_loss"},
                          {"milestone", kTotal},
                          {"minimal_difference", 0.0},
                          {"test", "t"},
                          {"level", 0.05}};
  protocol["model"] = {{"layers", kLayers}, {"width", 128}, {"heads", 2}};
  protocol["train"] = {{"learning_rate", 3e-3}, {"batch", 16}};
  protocol["data"] = {{"name", "gcide"}, {"vocabulary", 4096}};
  return protocol;
}

// Changes a JSON file in place.
inline void edit_json(const fs::path& path, const std::function<void(Json&)>& change) {
  Json value = read_json(path);
  change(value);
  write_json(path, value);
}

// A study folder under the temporary directory, removed with the object.
class TestStudy {
 public:
  explicit TestStudy(int64_t seed_count) {
    write_json(path() / "study.json",
               {{"format", "depthroute-study/1"}, {"hash", ""}, {"protocol", protocol_of(seed_count)}});
    for (const std::string& variant : kVariants) {
      for (int64_t seed = 1; seed <= seed_count; ++seed) write_run(path(), variant, seed);
    }
    seal();
  }

  const fs::path& path() const { return folder_.path(); }
  fs::path run(const std::string& variant, int64_t seed) const { return run_folder(path(), variant, seed); }
  void edit_protocol(const std::function<void(Json&)>& change) const {
    edit_json(path() / "study.json", [&](Json& study) { change(study["protocol"]); });
    seal();
  }
  // Rewrites a run's metrics event by event; an event for which `keep` is false is dropped.
  void edit_metrics(const std::string& variant, int64_t seed, const std::function<bool(Json&)>& keep) const {
    std::string lines;
    for (Json& event : read_json_lines(run(variant, seed) / "metrics.jsonl")) {
      if (keep(event)) lines += event.dump() + "\n";
    }
    write_file(run(variant, seed) / "metrics.jsonl", lines);
  }

 private:
  // The protocol's hash, in the study and in its runs.
  void seal() const {
    std::string hash;
    edit_json(path() / "study.json", [&](Json& study) {
      hash = config_hash(study["protocol"]);
      study["hash"] = hash;
    });
    for (const fs::directory_entry& run : fs::directory_iterator(path() / "runs"))
      edit_json(run.path() / "run.json", [&](Json& json) { json["study_hash"] = hash; });
  }

  TestFolder folder_;
};

}  // namespace depthroute::testing
