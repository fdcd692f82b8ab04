#include "study/results.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "io/format.h"
#include "train/checkpoint.h"
#include "train/run_config.h"

namespace depthroute {
namespace {

namespace fs = std::filesystem;

// Counts beyond these are damage, not a study; they bound the size of a report.
constexpr size_t kMaxVariants = 64, kMaxSeeds = 1000, kMaxMilestones = 1000;

// A number, or NaN where it is absent or null (JSON has no NaN, so a loss that was not finite is null).
double number(const Json& value, const char* key, const std::string& where) {
  if (!value.is_object()) fail_input("{}: expected an object, found {}", where, value.type_name());
  const auto found = value.find(key);
  if (found == value.end() || found->is_null()) return kNotANumber;
  if (!found->is_number()) fail_input("{}: key '{}' is not a number", where, key);
  return found->get<double>();
}

int64_t as_count(const Json& value, const std::string& what) {
  // Written as 4096000.0 by some tools; beyond 2^53 a double is no exact count.
  if (value.is_number_float()) {
    const double real = value.get<double>();
    if (real >= 0 && real <= 9007199254740992.0 && real == std::floor(real)) return static_cast<int64_t>(real);
  } else if (value.is_number_integer() && value <= Json(std::numeric_limits<int64_t>::max()) && value >= Json(0)) {
    return value.get<int64_t>();
  }
  fail_input("{}: expected a whole number from 0 on, found {}", what, dump_json(value));
}

int64_t count(const Json& value, const char* key, const std::string& where) {
  if (!value.is_object() || !value.contains(key)) fail_input("{}: key '{}' is missing", where, key);
  return as_count(value.at(key), where + ": key '" + key + "'");
}

int64_t count_or(const Json& value, const char* key, int64_t otherwise, const std::string& where) {
  return value.contains(key) && !value.at(key).is_null() ? count(value, key, where) : otherwise;
}

std::string text_or_empty(const Json& value, const char* key, const std::string& where) {
  return value.contains(key) && !value.at(key).is_null() ? json_get<std::string>(value, key, where) : std::string();
}

std::vector<int64_t> counts(const Json& value, const char* key, const std::string& where) {
  const Json list = json_get<Json>(value, key, where);
  if (!list.is_array()) fail_input("{}: key '{}' is not a list", where, key);
  std::vector<int64_t> result;
  for (const Json& item : list) result.push_back(as_count(item, where + ": key '" + key + "'"));
  return result;
}

void check_format(const Json& value, const std::string& expected, const std::string& where) {
  const auto format = json_get<std::string>(value, "format", where);
  if (format != expected) fail_input("{}: format is '{}', expected '{}'", where, format, expected);
}

template <typename T>
void check_list(const std::vector<T>& list, size_t most, const char* key, const std::string& where) {
  if (list.empty() || list.size() > most) {
    fail_input("{}: protocol.{} has {} entries, expected 1 to {}", where, key, list.size(), most);
  }
  if (std::set<T>(list.begin(), list.end()).size() != list.size()) {
    fail_input("{}: protocol.{} names something twice", where, key);
  }
}

DecisionRule read_decision(const Json& json, const StudyProtocol& protocol, const std::string& where) {
  const auto metric = json_get<std::string>(json, "metric", where);
  if (metric != "validation_loss")
    fail_input("{}: metric '{}' is unknown, expected validation_loss", where, metric);
  DecisionRule rule{count(json, "milestone", where), number(json, "minimal_difference", where),
                    json_get<std::string>(json, "test", where), number(json, "level", where)};
  if (std::isnan(rule.minimal_difference)) rule.minimal_difference = 0;
  if (rule.minimal_difference < 0) fail_input("{}: minimal_difference is negative", where);
  if (!(rule.level > 0 && rule.level < 1)) fail_input("{}: level is not between 0 and 1", where);
  if (rule.test != "t" && rule.test != "sign" && rule.test != "permutation") {
    fail_input("{}: test '{}' is unknown, expected t, sign or permutation", where, rule.test);
  }
  const std::string correction = json.value("correction", "none");
  if (correction != "none" && correction != "holm") {
    fail_input("{}: correction '{}' is unknown, expected none or holm", where, correction);
  }
  rule.holm = correction == "holm";
  if (std::ranges::find(protocol.milestones, rule.milestone) == protocol.milestones.end()) {
    fail_input("{}: milestone {} is not one of the study's milestones", where, rule.milestone);
  }
  return rule;
}

void read_description(const fs::path& path, RunResult& run) {
  const Json json = read_json(path);
  const std::string where = path.string();
  check_format(json, "depthroute-run/1", where);
  const auto variant = json_get<std::string>(json, "variant", where);
  const int64_t seed = count(json, "seed", where);
  if (variant != run.variant || seed != run.seed) {
    fail_input("{}: describes '{}' seed {}, not the run its folder is named after", where, variant, seed);
  }
  run.study_hash = json_get<std::string>(json, "study_hash", where);
  run.config_hash = text_or_empty(json, "config_hash", where);
  run.data_hash = text_or_empty(json, "data_hash", where);
  run.torch_version = text_or_empty(json, "torch_version", where);
  run.depthroute_version = text_or_empty(json, "depthroute_version", where);
  run.machine = text_or_empty(json, "machine", where);
  run.threads = count_or(json, "threads", 0, where);
  run.parameters = count_or(json, "parameters", 0, where);
  run.non_embedding_parameters = count_or(json, "non_embedding_parameters", 0, where);
  run.flops_per_token = number(json, "flops_per_token", where);
  run.residual_bytes_per_token = number(json, "residual_bytes_per_token", where);
  run.bytes_per_token = number(json, "bytes_per_token", where);
  run.config = json.value("config", Json::object());
}

ValidationPoint read_validation(const Json& event, const std::string& where) {
  ValidationPoint point;
  point.milestone = event.contains("milestone") && json_get<bool>(event, "milestone", where);
  point.loss = number(event, "loss", where);
  point.perplexity = number(event, "perplexity", where);
  point.bits_per_byte = number(event, "bits_per_byte", where);
  point.seconds = number(event, "seconds", where);
  point.flops = number(event, "flops", where);
  return point;
}

DepthReadSummary read_depth_read(const Json& json, const std::string& where) {
  DepthReadSummary read{json_get<std::string>(json, "site", where), json_get<std::string>(json, "kind", where),
                        json_get<std::string>(json, "role", where)};
  const bool layered = read.kind != "output" && json.contains("layer") && json["layer"] != -1;
  if (layered) read.layer = count_or(json, "layer", -1, where);
  read.sources = json_get<std::vector<std::string>>(json, "sources", where);
  for (const Json& share : json_get<Json>(json, "mean", where)) {
    if (!share.is_number() && !share.is_null()) fail_input("{}: a mean of '{}' is not a number", where, read.site);
    read.mean.push_back(share.is_null() ? kNotANumber : share.get<double>());
  }
  if (read.mean.size() != read.sources.size()) {
    fail_input("{}: '{}' has {} sources but {} means", where, read.site, read.sources.size(), read.mean.size());
  }
  read.entropy = number(json, "entropy", where);
  read.largest = number(json, "largest", where);
  return read;
}

Diagnostics read_diagnostics(const Json& event, const std::string& where) {
  Diagnostics result;
  for (const Json& read : json_get<Json>(event, "reads", where))
    result.reads.push_back(read_depth_read(read, where));
  if (!event.contains("js_divergence") || event["js_divergence"].is_null()) return result;
  const Json& divergence = event["js_divergence"];
  for (const Json& layer : json_get<Json>(divergence, "layers", where)) {
    result.divergence.push_back(
        {count(layer, "layer", where), number(layer, "per_token", where), number(layer, "of_means", where)});
  }
  result.mean_per_token = number(divergence, "mean_per_token", where);
  result.mean_of_means = number(divergence, "mean_of_means", where);
  return result;
}

template <typename Point>
std::vector<Point> in_order(std::map<int64_t, Point> by_step) {
  std::vector<Point> result;
  for (auto& [step, point] : by_step) result.push_back(std::move(point));
  return result;
}

void apply_end(const Json& end, int64_t total_tokens, const std::string& where, RunResult& run) {
  const auto reason = json_get<std::string>(end, "reason", where);
  const int64_t step = count(end, "step", where), tokens = count(end, "tokens", where);
  run.message = text_or_empty(end, "message", where);
  if (reason == "finished" && tokens >= total_tokens) {
    run.state = RunState::kFinished;
    return;
  }
  // Taken over from a study with a shorter horizon, and not continued yet.
  if (reason == "finished") {
    run.state = RunState::kStopped;
    run.message = format_text("finished {} of {} tokens", tokens, total_tokens);
    return;
  }
  if (reason != "stopped" && reason != "non_finite") fail_input("{}: end reason '{}' is unknown", where, reason);
  run.state = reason == "stopped" ? RunState::kStopped : RunState::kNonFinite;
  const std::string said = run.message.empty() ? "" : ": " + run.message;
  run.message = format_text("{} at step {} ({} of {} tokens){}",
                            run.state == RunState::kStopped ? "stopped" : "the loss was not finite", step, tokens,
                            total_tokens, said);
}

struct Events {
  std::map<int64_t, TrainPoint> train{};
  std::map<int64_t, ValidationPoint> validation{};
  std::map<int64_t, Diagnostics> diagnostics{};
  std::optional<Json> end{};
  double peak_bytes = kNotANumber;
};

TrainPoint read_train(const Json& event, int64_t step, int64_t tokens, const std::string& where) {
  return {step,
          tokens,
          number(event, "loss", where),
          number(event, "learning_rate", where),
          number(event, "gradient_norm", where),
          number(event, "seconds", where),
          number(event, "tokens_per_second", where)};
}

// A resumed run repeats the steps since its last checkpoint, so the last event of a step is the valid one, and an
// end counts only while nothing was trained after it.
Events read_events(const fs::path& path) {
  Events events;
  const std::string where = path.string();
  for (const Json& event : read_json_lines(path)) {
    const auto kind = json_get<std::string>(event, "event", where);
    if (kind == "memory") {
      const double peak = number(event, "peak_bytes", where);
      if (!(events.peak_bytes >= peak)) events.peak_bytes = peak;
      continue;
    }
    if (kind != "train" && kind != "validation" && kind != "diagnostics" && kind != "end") continue;
    const int64_t step = count(event, "step", where), tokens = count(event, "tokens", where);
    if (kind == "end") {
      events.end = event;
    } else if (kind == "train") {
      events.end.reset();
      events.train[step] = read_train(event, step, tokens, where);
    } else if (kind == "validation") {
      ValidationPoint& point = events.validation[step] = read_validation(event, where);
      point.step = step, point.tokens = tokens;
    } else {
      Diagnostics& point = events.diagnostics[step] = read_diagnostics(event, where);
      point.step = step, point.tokens = tokens;
    }
  }
  return events;
}

// The milestones of a run that decays to them on branches. The run itself, not decayed, is no lower part of the same
// loss curve, nor is a branch on its way: of both only the train events of the run remain.
void add_branches(const fs::path& folder, Events& events) {
  events.validation.clear();
  for (const fs::path& branch : list_branches(folder)) {
    const fs::path path = branch / "metrics.jsonl";
    if (!fs::exists(path)) continue;
    Events decay = read_events(path);
    for (auto& [step, point] : decay.validation) {
      if (point.milestone) events.validation[step] = point;
    }
    events.diagnostics.merge(decay.diagnostics);
    if (!(events.peak_bytes >= decay.peak_bytes)) events.peak_bytes = decay.peak_bytes;
    if (decay.end && decay.end->value("reason", "") == "non_finite") events.end = decay.end;
  }
}

bool decays_on_branches(const RunResult& run) {
  const Json train = run.config.value("train", Json::object());
  return train.is_object() && train.contains("decay") && train["decay"] == "milestones";
}

void read_metrics(const fs::path& folder, int64_t total_tokens, RunResult& run) {
  const fs::path path = folder / "metrics.jsonl";
  Events events = read_events(path);
  if (decays_on_branches(run)) add_branches(folder, events);
  run.peak_bytes = events.peak_bytes;
  run.train = in_order(std::move(events.train));
  run.validation = in_order(std::move(events.validation));
  run.diagnostics = in_order(std::move(events.diagnostics));
  if (events.end) return apply_end(*events.end, total_tokens, path.string(), run);
  const int64_t reached = std::max(run.train.empty() ? 0 : run.train.back().tokens,
                                   run.validation.empty() ? 0 : run.validation.back().tokens);
  run.message =
      format_text("no end in its metrics: running or killed, {} of {} tokens so far", reached, total_tokens);
}

void read_test(const fs::path& path, RunResult& run) {
  if (!fs::exists(path)) return;
  const Json json = read_json(path);
  const std::string where = path.string();
  run.test = ValidationPoint{};
  run.test->loss = number(json, "loss", where);
  run.test->perplexity = number(json, "perplexity", where);
  run.test->bits_per_byte = number(json, "bits_per_byte", where);
}

RunResult read_run(const fs::path& folder, const std::string& variant, int64_t seed, const StudyResults& study) {
  RunResult run;
  run.variant = variant;
  run.seed = seed;
  try {
    if (!fs::exists(folder / "run.json")) {
      run.message = "not started: no " + (fs::path("runs") / folder.filename() / "run.json").string();
      return run;
    }
    read_description(folder / "run.json", run);
    if (run.study_hash != study.hash) {
      run.state = RunState::kForeign;
      run.message = format_text("refused: it belongs to the study with hash {}, this one's is {}", run.study_hash,
                                study.hash);
      return run;
    }
    run.state = RunState::kRunning;
    run.message = "started, nothing measured yet";
    if (fs::exists(folder / "metrics.jsonl")) {
      read_metrics(folder, study.protocol.total_tokens, run);
    }
    read_test(folder / "test.json", run);
  } catch (const std::exception& error) {
    run = RunResult{};
    run.variant = variant;
    run.seed = seed;
    run.state = RunState::kUnreadable;
    run.message = std::string("damaged: ") + error.what();
  }
  return run;
}

}  // namespace

bool StudyProtocol::has_variant(const std::string& name_of_variant) const {
  return std::ranges::find(variants, name_of_variant) != variants.end();
}

double StudyProtocol::strictest_level() const {
  const bool divided = decision.holm && !comparisons.empty();
  return divided ? decision.level / static_cast<double>(comparisons.size()) : decision.level;
}

StudyProtocol read_protocol(const Json& json, const std::string& where) {
  StudyProtocol protocol;
  protocol.name = json_get<std::string>(json, "name", where);
  protocol.variants = json_get<std::vector<std::string>>(json, "variants", where);
  protocol.seeds = counts(json, "seeds", where);
  protocol.total_tokens = count(json, "total_tokens", where);
  protocol.milestones = counts(json, "milestones", where);
  check_list(protocol.variants, kMaxVariants, "variants", where);
  check_list(protocol.seeds, kMaxSeeds, "seeds", where);
  check_list(protocol.milestones, kMaxMilestones, "milestones", where);
  if (!std::ranges::is_sorted(protocol.milestones)) fail_input("{}: the milestones are not ascending", where);
  for (const std::string& variant : protocol.variants) {
    // A variant's name is part of a folder's name: it must not lead out of the study.
    if (variant.empty() || variant.find_first_of(std::string("/\\\0", 3)) != std::string::npos) {
      fail_input("{}: variant '{}' cannot name a run folder", where, variant);
    }
  }
  const Json comparisons = json_get<Json>(json, "comparisons", where);
  if (!comparisons.is_array()) fail_input("{}: key 'comparisons' is not a list", where);
  for (const Json& item : comparisons) {
    protocol.comparisons.push_back(
        {json_get<std::string>(item, "variant", where), json_get<std::string>(item, "baseline", where)});
  }
  protocol.decision = read_decision(json_get<Json>(json, "decision", where), protocol, where + ": decision");
  if (!json.contains("calibration")) return protocol;
  protocol.calibration =
      json_get<std::string>(json_get<Json>(json, "calibration", where), "variant", where + ": calibration");
  if (protocol.calibration.empty() || protocol.comparisons.size() != 1 ||
      protocol.comparisons[0].baseline != protocol.calibration) {
    fail_input("{}: an A/A study compares one variant with itself alone", where);
  }
  return protocol;
}

const RunResult* StudyResults::find(const std::string& variant, int64_t seed) const {
  for (const RunResult& run : runs) {
    if (run.variant == variant && run.seed == seed) return &run;
  }
  return nullptr;
}

RunResult read_single_run(const fs::path& folder, int64_t* total_tokens) {
  const Json description = read_json(folder / "run.json");
  const std::string where = (folder / "run.json").string();
  StudyResults alone;
  alone.hash = json_get<std::string>(description, "study_hash", where);
  *total_tokens =
      count(json_get<Json>(json_get<Json>(description, "config", where), "train", where), "tokens", where);
  alone.protocol.total_tokens = *total_tokens;
  return read_run(folder, json_get<std::string>(description, "variant", where), count(description, "seed", where),
                  alone);
}

StudyResults read_study(const fs::path& folder) {
  const fs::path path = folder / "study.json";
  const std::string where = path.string();
  const Json json = read_json(path);
  check_format(json, "depthroute-study/1", where);
  StudyResults study;
  study.hash = json_get<std::string>(json, "hash", where);
  study.protocol_json = json_get<Json>(json, "protocol", where);
  study.protocol = read_protocol(study.protocol_json, where);
  if (config_hash(study.protocol_json) != study.hash) {
    fail_input("'{}': its hash is not that of its protocol, which has been changed since the start", where);
  }
  for (const std::string& variant : study.protocol.variants) {
    for (int64_t seed : study.protocol.seeds) {
      const fs::path run_folder = folder / "runs" / format_text("{}-seed{}", variant, seed);
      study.runs.push_back(read_run(run_folder, variant, seed, study));
    }
  }
  return study;
}

const ValidationPoint* milestone_point(const RunResult& run, int64_t milestone) {
  const ValidationPoint* nearest = nullptr;
  int64_t distance = 0;
  for (const ValidationPoint& point : run.validation) {
    const int64_t away = std::abs(point.tokens - milestone);
    if (point.milestone && (!nearest || away < distance)) nearest = &point, distance = away;
  }
  if (!nearest) return nullptr;
  const int64_t tokens_a_step = nearest->step > 0 ? nearest->tokens / nearest->step : 0;
  return distance == 0 || distance < tokens_a_step ? nearest : nullptr;
}

std::string run_state_name(RunState state) {
  switch (state) {
    case RunState::kMissing:
      return "missing";
    case RunState::kUnreadable:
      return "damaged";
    case RunState::kForeign:
      return "refused";
    case RunState::kRunning:
      return "not finished";
    case RunState::kStopped:
      return "stopped";
    case RunState::kNonFinite:
      return "not finite";
    case RunState::kFinished:
      return "finished";
  }
  return "unknown";
}

}  // namespace depthroute
