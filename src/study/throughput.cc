#include "study/throughput.h"

#include <algorithm>
#include <cmath>

namespace depthroute {

Throughput read_throughput(const std::filesystem::path& path, const StudyResults& study) {
  const Json json = read_json(path);
  const std::string where = path.string();
  if (!json.is_object() || !json.contains("study_hash")) {
    fail_input("{}: not the measurement of a study; bench step --study FILE --json makes one", where);
  }
  const auto hash = json_get<std::string>(json, "study_hash", where);
  if (hash != study.hash) {
    fail_input("{}: measured for the study with hash {}, this one's is {}", where, hash, study.hash);
  }
  Throughput throughput{json_get<std::string>(json, "machine", where), json_get<int64_t>(json, "threads", where)};
  for (const Json& item : json_get<std::vector<Json>>(json, "variants", where)) {
    const auto variant = json_get<std::string>(item, "variant", where);
    const auto rate = json_get<double>(item, "tokens_per_second", where);
    if (!(std::isfinite(rate) && rate > 0)) fail_input("{}: tokens_per_second of {} is {}", where, variant, rate);
    throughput.variants.push_back({variant, rate});
  }
  for (const std::string& variant : study.protocol.variants) {
    if (throughput.tokens_per_second(variant) == 0) fail_input("{}: variant '{}' was not measured", where, variant);
  }
  return throughput;
}

double Throughput::tokens_per_second(const std::string& variant) const {
  const auto found = std::ranges::find(variants, variant, &VariantThroughput::variant);
  return found == variants.end() ? 0 : found->tokens_per_second;
}

void apply_throughput(const Throughput& throughput, StudyResults& study) {
  for (RunResult& run : study.runs) {
    const double rate = throughput.tokens_per_second(run.variant);
    for (TrainPoint& point : run.train) {
      point.seconds = static_cast<double>(point.tokens) / rate;
      point.tokens_per_second = rate;
    }
    for (ValidationPoint& point : run.validation) point.seconds = static_cast<double>(point.tokens) / rate;
  }
  study.throughput = throughput;
}

}  // namespace depthroute
