#include "study/calibration.h"

#include <algorithm>
#include <cmath>

#include "io/format.h"
#include "study/report_analysis.h"

namespace depthroute {
namespace {

constexpr const char* kAgain = "-again";

std::string chosen_variant(const StudyConfig& study, const std::string& variant) {
  const Json& comparisons = study.protocol.at("comparisons");
  if (variant.empty() && comparisons.empty()) {
    fail_input(
        "study: --aa takes the first comparison's baseline, and the study has no comparisons; give --variant");
  }
  const std::string chosen = variant.empty() ? comparisons[0].at("baseline").get<std::string>() : variant;
  const auto variants = study.protocol.at("variants").get<std::vector<std::string>>();
  if (std::ranges::find(variants, chosen) == variants.end()) {
    fail_input("study: --variant '{}' is not one of the study's variants: {}", chosen, join_text(variants, ", "));
  }
  return chosen;
}

// In what the training of the A/A study differs; variants, seeds, comparisons and the rule may.
std::vector<std::string> other_training(const Json& twice, const Json& protocol, const std::string& variant) {
  Json ours = Json::object(), theirs = Json::object();
  for (const char* key : {"model", "train", "data"}) {
    ours[key] = twice.value(key, Json::object());
    theirs[key] = protocol.value(key, Json::object());
  }
  const Json residual = twice.value("residual", Json::object()), other = protocol.value("residual", Json::object());
  if (residual.contains(variant) && other.contains(variant)) {
    ours["residual"] = residual.at(variant);
    theirs["residual"] = other.at(variant);
  }
  return differing_keys(ours, theirs);
}

std::string data_hash_of(const StudyResults& study) {
  for (const RunResult& run : study.runs) {
    if (run.usable() && !run.data_hash.empty()) return run.data_hash;
  }
  return {};
}

}  // namespace

StudyConfig calibration_study(const StudyConfig& study, const std::string& variant) {
  const std::string chosen = chosen_variant(study, variant), again = chosen + kAgain;
  const auto seeds = study.protocol.at("seeds").get<std::vector<int64_t>>();
  const int64_t largest = *std::ranges::max_element(seeds);
  if (largest > INT64_MAX - static_cast<int64_t>(seeds.size())) {
    fail_input("study: a seed of {} leaves no numbers above it for the data orders of --aa", largest);
  }
  StudyConfig result;
  result.name = format_text("{}: A/A of {}", study.name, chosen);
  Json orders = Json::array();
  for (const StudyRun& run : study.runs) {
    if (run.variant != chosen) continue;
    const int64_t order = largest + 1 + static_cast<int64_t>(orders.size());
    orders.push_back(order);
    StudyRun second{0, again, run.config};
    second.config.data_order_seed = static_cast<uint64_t>(order);
    for (const StudyRun& item : {run, second}) {
      result.runs.push_back(item);
      result.runs.back().index = std::ssize(result.runs) - 1;
    }
  }
  result.protocol = study.protocol;
  result.protocol["name"] = result.name;
  result.protocol["variants"] = Json::array({chosen, again});
  result.protocol["comparisons"] = Json::array({json_object({{"variant", again}, {"baseline", chosen}})});
  const Json residual = study.protocol.at("residual").at(chosen);
  result.protocol["residual"] = Json::object();
  for (const std::string& name : {chosen, again}) result.protocol["residual"][name] = residual;
  result.protocol["calibration"] = json_object({{"variant", chosen}, {"data_order_seeds", orders}});
  result.hash = config_hash(result.protocol);
  return result;
}

Calibration read_calibration(const std::filesystem::path& folder, const StudyResults& study) {
  const StudyResults twice = read_study(folder);
  const std::string& variant = twice.protocol.calibration;
  const std::string where = format_text("'{}'", folder.string());
  if (variant.empty()) fail_input("{} is not an A/A study; study --aa makes one", where);
  const std::vector<std::string> keys = other_training(twice.protocol_json, study.protocol_json, variant);
  if (!keys.empty()) {
    fail_input("{} says nothing about this study: it was trained with other values of {}", where,
               join_text(keys, ", "));
  }
  const std::string hash = data_hash_of(twice), study_hash = data_hash_of(study);
  if (!hash.empty() && !study_hash.empty() && hash != study_hash) {
    fail_input("{} says nothing about this study: it was trained on other data", where);
  }
  const PairedResult result =
      compare_runs(twice, twice.protocol.comparisons.at(0), study.protocol.decision.milestone);
  Calibration calibration{twice.protocol.name, twice.hash, variant, result.milestone};
  for (const SeedDifference& pair : result.pairs) {
    if (pair.reason.empty()) calibration.differences.push_back(pair.difference());
  }
  calibration.standard_deviation = result.statistics.standard_deviation;
  calibration.largest = result.statistics.largest;
  return calibration;
}

std::string calibration_sentence(const Calibration& calibration, const PairedResult& result) {
  const std::string source = format_text("A/A study {}", calibration.study);
  if (!calibration.largest) return format_text("{} has no complete pair yet.", source);
  const size_t pairs = calibration.differences.size();
  std::string text = format_text(
      "Chance alone: two runs of {} that differ only in the order of the data differ by at most {} nats in {} "
      "pair{}",
      calibration.variant, fixed_number(calibration.largest), pairs, pairs == 1 ? "" : "s");
  if (calibration.standard_deviation) {
    text += format_text(", with a standard deviation of {}", fixed_number(calibration.standard_deviation));
  }
  text += format_text(" ({}).", source);
  const PairedStatistics& s = result.statistics;
  if (!s.mean) return text;
  text += format_text(" The mean difference here is {} that largest one",
                      std::abs(*s.mean) > *calibration.largest ? "larger than" : "no larger than");
  if (calibration.standard_deviation && *calibration.standard_deviation > 0) {
    text += format_text(", and {:.2f} times that standard deviation",
                        std::abs(*s.mean) / *calibration.standard_deviation);
  }
  if (s.standard_deviation)
    text += format_text("; the pairs here have a standard deviation of {}", fixed_number(s.standard_deviation));
  // Without this the sentence would read as a test, which it is not: the order of the data is most of what such runs
  // differ by, and cancels in a pair.
  return text +
         ". Pairs here share the order of the data, which cancels in them: this is a bound on chance, and no test.";
}

}  // namespace depthroute
