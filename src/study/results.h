// A study folder read back: what the report, its tables and its figures are made from.
//
//   STUDY/study.json                     the frozen protocol and its hash
//   STUDY/runs/VARIANT-seedN/run.json    what the run is (hashes, parameters, cost per token)
//                          /metrics.jsonl one event a line: train, validation, diagnostics, memory, end
//                          /test.json    optional, written once at the end
//
// The protocol must be sound (InputError otherwise); a run may be missing, half-finished, failed or damaged: it
// gets a state and a message, and the rest of the study stays readable. A loss that was not finite is null in JSON
// and NaN here.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"

namespace depthroute {

inline constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

struct Comparison {
  std::string variant, baseline;
};

// The rule written down before the first result: at `milestone` the variant is better (worse) where the mean paired
// difference is negative (positive), at least minimal_difference in size, and the test's two-sided p-value, corrected
// for the number of the study's comparisons, is below level.
struct DecisionRule {
  int64_t milestone = 0;  // tokens
  double minimal_difference = 0;
  std::string test;  // t | sign | permutation
  double level = 0.05;
  bool holm = false;  // the correction: Holm's, or none
};

struct StudyProtocol {
  std::string name;
  std::vector<std::string> variants;
  std::vector<int64_t> seeds;
  int64_t total_tokens = 0;
  std::vector<int64_t> milestones;  // tokens, ascending
  std::vector<Comparison> comparisons;
  DecisionRule decision;
  std::string calibration;  // an A/A study's variant, see calibration.h; empty in an ordinary study

  bool has_variant(const std::string& name_of_variant) const;
  // What the least p-value of the study has to stay below: with Holm's correction the level by the comparisons.
  double strictest_level() const;
};

struct TrainPoint {
  int64_t step = 0, tokens = 0;
  double loss = kNotANumber, learning_rate = kNotANumber, gradient_norm = kNotANumber;
  double seconds = kNotANumber,
         tokens_per_second = kNotANumber;  // seconds of training since the start, evaluation not counted
};

struct ValidationPoint {
  int64_t step = 0, tokens = 0;
  bool milestone = false;
  double loss = kNotANumber, perplexity = kNotANumber, bits_per_byte = kNotANumber;
  double seconds = kNotANumber, flops = kNotANumber;
};

// One depth read, averaged over the validation tokens: how much each source gets.
struct DepthReadSummary {
  std::string site, kind, role;  // kind: attention | mlp | output
  int64_t layer = -1;            // -1: not in a layer (the final read)
  std::vector<std::string> sources{};
  std::vector<double> mean{};  // one share a source, summing to one
  double entropy = kNotANumber, largest = kNotANumber;
};

// Jensen-Shannon divergence of the query-key and value distributions, natural logarithm.
struct LayerDivergence {
  int64_t layer = 0;
  double per_token = kNotANumber, of_means = kNotANumber;
};

struct Diagnostics {
  int64_t step = 0, tokens = 0;
  std::vector<DepthReadSummary> reads;
  std::vector<LayerDivergence> divergence;  // empty for a run whose attention has one route
  double mean_per_token = kNotANumber, mean_of_means = kNotANumber;
};

enum class RunState {
  kMissing,     // no folder or no run.json
  kUnreadable,  // a damaged file; the message says which
  kForeign,     // belongs to another protocol: refused
  kRunning,     // started, without an end
  kStopped,     // ended before its tokens, on request
  kNonFinite,   // ended by a loss that is not finite
  kFinished,
};

struct RunResult {
  std::string variant;
  int64_t seed = 0;
  RunState state = RunState::kMissing;
  std::string message;  // why, for every state but kFinished

  std::string study_hash, config_hash, data_hash, torch_version, depthroute_version, machine;
  int64_t threads = 0, parameters = 0, non_embedding_parameters = 0;
  double flops_per_token = kNotANumber, residual_bytes_per_token = kNotANumber, bytes_per_token = kNotANumber;
  Json config;

  std::vector<TrainPoint> train;  // ascending steps, here and below
  std::vector<ValidationPoint> validation;
  std::vector<Diagnostics> diagnostics;
  double peak_bytes = kNotANumber;
  std::optional<ValidationPoint> test;  // loss, perplexity and bits per byte only

  // May its figures be shown and compared?
  bool usable() const {
    return state != RunState::kMissing && state != RunState::kUnreadable && state != RunState::kForeign;
  }
};

// How much pairs of one variant with itself differ (study/calibration.h), in nats a token.
struct Calibration {
  std::string study, hash, variant;
  int64_t milestone = 0;  // tokens
  std::vector<double> differences{};
  std::optional<double> standard_deviation{}, largest{};  // of the differences, and of their sizes
};

struct VariantThroughput {
  std::string variant;
  double tokens_per_second = 0;
};

// What one machine measured of a study's variants (study/throughput.h).
struct Throughput {
  std::string machine;
  int64_t threads = 0;
  std::vector<VariantThroughput> variants{};

  double tokens_per_second(const std::string& variant) const;  // 0 where it was not measured
};

struct StudyResults {
  std::string hash;
  StudyProtocol protocol;
  Json protocol_json;           // as in the file, with keys unknown here
  std::vector<RunResult> runs;  // variants in the protocol's order, seeds within
  // Of an A/A study to put beside the effects; read_study leaves it absent.
  std::optional<Calibration> calibration;
  // Of a measurement that the runs' seconds were taken from; read_study leaves it absent: they are the runs' own then.
  std::optional<Throughput> throughput;

  const RunResult* find(const std::string& variant, int64_t seed) const;
};

// The protocol of a study.json or of a study config. InputError, naming `where`, where it is not sound.
StudyProtocol read_protocol(const Json& json, const std::string& where);

StudyResults read_study(const std::filesystem::path& folder);

// A run's folder by itself, with the tokens it is to be trained for. InputError where it has no sound run.json.
RunResult read_single_run(const std::filesystem::path& folder, int64_t* total_tokens);

// The run's validation at a milestone (tokens), or null. The trainer validates after whole steps, so the event may
// lie up to one step's tokens beside the milestone.
const ValidationPoint* milestone_point(const RunResult& run, int64_t milestone);

// "finished", "not finished", ..., in words for tables.
std::string run_state_name(RunState state);

}  // namespace depthroute
