#include "study/study_config.h"

#include <algorithm>
#include <set>

#include "io/format.h"

namespace depthroute {
namespace {

std::vector<std::string> read_variants(Config& config) {
  std::vector<std::string> variants = config.strings("variants");
  if (variants.empty()) fail_input("{}: a study needs at least one variant", config.where("variants"));
  if (std::set<std::string>(variants.begin(), variants.end()).size() != variants.size()) {
    fail_input("{}: a variant is named twice", config.where("variants"));
  }
  return variants;
}

std::vector<int64_t> read_seeds(Config& config) {
  std::vector<int64_t> seeds = config.integers("seeds");
  bool good = !seeds.empty() && std::all_of(seeds.begin(), seeds.end(), [](int64_t seed) { return seed >= 0; }) &&
              std::set<int64_t>(seeds.begin(), seeds.end()).size() == seeds.size();
  if (!good) fail_input("{}: expected at least one seed, all different and none negative", config.where("seeds"));
  return seeds;
}

Json read_comparisons(Config& config, const std::vector<std::string>& variants) {
  Json comparisons = Json::array();
  for (Config& table : config.tables("comparisons")) {
    Json comparison;
    for (const char* side : {"variant", "baseline"}) {
      std::string name = table.string(side);
      if (std::find(variants.begin(), variants.end(), name) == variants.end()) {
        fail_input("{}: '{}' is not one of the study's variants", table.where(side), name);
      }
      comparison[side] = name;
    }
    if (comparison["variant"] == comparison["baseline"]) {
      fail_input("{}: a variant is compared with itself", table.where("variant"));
    }
    table.finish();
    comparisons.push_back(comparison);
  }
  return comparisons;
}

Json read_decision(Config table, const TrainConfig& train) {
  int64_t milestone = table.integer("milestone", train.milestones.back());
  if (std::find(train.milestones.begin(), train.milestones.end(), milestone) == train.milestones.end()) {
    fail_input("{}: {} is not one of train.milestones", table.where("milestone"), milestone);
  }
  std::string test = table.string("test", "t");
  if (test != "t" && test != "sign" && test != "permutation") {
    fail_input("{}: unknown test '{}', expected t, sign or permutation", table.where("test"), test);
  }
  std::string correction = table.string("correction", "none");
  if (correction != "none" && correction != "holm") {
    fail_input("{}: unknown correction '{}', expected none or holm", table.where("correction"), correction);
  }
  Json decision = json_object({{"metric", "validation_loss"},
                               {"milestone", milestone},
                               {"minimal_difference", table.number_between("minimal_difference", 0, 0, 100)},
                               {"test", test},
                               {"correction", correction},
                               {"level", table.number_between("level", 0.05, 1e-9, 0.5)}});
  table.finish();
  return decision;
}

}  // namespace

std::string StudyRun::name() const {
  return format_text("{}-seed{}", variant, config.seed);
}

StudyConfig read_study_config(Config& config) {
  StudyConfig study;
  study.name = config.string("name");
  std::vector<std::string> variants = read_variants(config);
  std::vector<int64_t> seeds = read_seeds(config);
  Json comparisons = read_comparisons(config, variants);
  Config data = config.table("data");
  std::filesystem::path folder = data.string("folder");
  data.finish();

  std::vector<ModelConfig> models;
  for (const std::string& variant : variants) models.push_back(read_model_config(config, variant));
  TrainConfig train = read_train_config(config.table("train"), models[0].context);
  Json decision = read_decision(config.table("decision"), train);
  config.finish();

  for (int64_t seed : seeds) {
    for (size_t v = 0; v < variants.size(); ++v) {
      RunConfig run{.model = models[v], .train = train, .data_folder = folder, .seed = static_cast<uint64_t>(seed)};
      study.runs.push_back({static_cast<int64_t>(study.runs.size()), variants[v], run});
    }
  }
  Json canonical = run_config_to_json(study.runs[0].config);
  Json model_variants = Json::object();
  for (size_t v = 0; v < variants.size(); ++v)
    model_variants[variants[v]] = model_config_to_json(models[v])["depthroute"];
  Json model = canonical["model"];
  for (const char* key : {"architectures", "model_type", "depthroute"}) model.erase(key);
  study.protocol = json_object({{"name", study.name},
                                {"variants", variants},
                                {"seeds", seeds},
                                {"total_tokens", train.tokens},
                                {"milestones", train.milestones},
                                {"comparisons", comparisons},
                                {"decision", decision},
                                {"model", model},
                                {"residual", model_variants},
                                {"train", canonical["train"]},
                                {"data", canonical["data"]}});
  study.hash = config_hash(study.protocol);
  return study;
}

}  // namespace depthroute
