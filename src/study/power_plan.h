// How many seeds a study needs, before it is run: for the spread that another study measured, or a given one.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "study/results.h"

namespace depthroute {

// The power that a report plans for.
inline constexpr double kUsualPower = 0.8;

// The least number of seeds at which the protocol's rule can show a true difference with at least this power: by the
// paired t test at the protocol's strictest level, at least kLeastPairs, and with an exact test at least as many as its
// p-value needs to fall below the level at all. Nothing where no number does.
std::optional<int64_t> seeds_needed(const StudyProtocol& protocol, double difference, double standard_deviation,
                                    double power);

struct PowerOptions {
  std::optional<double> difference{};          // nats a token; absent: the rule's minimal_difference
  std::optional<double> standard_deviation{};  // of the paired differences, nats a token
  std::string study_folder{};                  // where it is measured instead, each comparison by itself
  double power = kUsualPower;
};

struct ComparisonPower {
  Comparison comparison;
  std::optional<double> standard_deviation{};
  int64_t measured_pairs = 0;                // 0: a given standard deviation
  std::optional<double> power_as_planned{};  // of the study with the seeds it has
  std::optional<int64_t> seeds{};
  std::string reason{};  // why a figure above is missing
};

struct PowerPlan {
  double difference = 0, power = 0, level = 0;
  int64_t planned_seeds = 0;
  std::vector<ComparisonPower> comparisons{};  // those of the study
  std::vector<std::string> remarks{};          // what the figures rest on
};

// InputError where not exactly one of standard_deviation and study_folder is given, where there is no difference to look
// for, or where the folder holds no study.
PowerPlan plan_power(const StudyProtocol& protocol, const PowerOptions& options);

Json power_plan_to_json(const PowerPlan& plan);
// Plain lines for a terminal.
std::string power_plan_text(const PowerPlan& plan);

}  // namespace depthroute
