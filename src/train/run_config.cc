#include "train/run_config.h"

#include <thread>

#include "io/checksum.h"
#include "io/format.h"
#include "io/text.h"
#include "train/checkpoint.h"
#include "train/schedule.h"

namespace depthroute {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 50, kMaxWindows = int64_t{1} << 24, kMaxSteps = int64_t{1} << 40;

// A value that is neither 0 nor more is a mistake in every one of these keys.
void override_size(Config& table, const char* key, int64_t& value) {
  value = table.integer_between(key, value, value == 0 ? 1 : 0, int64_t{1} << 20);
}

// Keys whose value leaves the result as it is.
bool shapes_result(const std::string& key) {
  return key != "train.log_interval" && key != "train.checkpoint_interval" && key != "data.folder" &&
         key != "train.initial_checkpoint";
}

void flatten(const Json& value, const std::string& path, std::map<std::string, Json>& flat) {
  if (!value.is_object()) {
    flat[path] = value;
    return;
  }
  for (const auto& [key, child] : value.items()) flatten(child, path.empty() ? key : path + "." + key, flat);
}

std::map<std::string, Json> result_keys(const Json& canonical) {
  std::map<std::string, Json> flat;
  flatten(canonical, "", flat);
  // Only a schedule that can be extended has the key: how far it goes changes nothing of what is there already.
  if (flat.contains("train.decay")) flat.erase("train.tokens"), flat.erase("train.milestones");
  std::erase_if(flat, [](const auto& item) { return !shapes_result(item.first); });
  return flat;
}

Decay read_decay(const Config& table, Schedule schedule, const std::string& name) {
  if (name == "end") return Decay::kEnd;
  if (name != "milestones" && name != "none") {
    fail_input("{}: unknown decay '{}', expected end, milestones or none", table.where("decay"), name);
  }
  if (schedule == Schedule::kCosine)
    fail_input("{}: a cosine decays over the whole run; decay is for schedule = \"wsd\"", table.where("decay"));
  return name == "none" ? Decay::kNone : Decay::kMilestones;
}

void read_residual_config(Config table, ModelConfig& model, const std::string& variant) {
  std::string name = table.string("variant", "standard");
  model.residual = named_residual_config(variant.empty() ? name : variant, model.layers);
  ResidualConfig& residual = model.residual;
  // Settings of depth reads are taken note of, and left aside, for a variant that has none: in a study they hold
  // for all variants.
  std::string attention_routes = table.string("attention_routes", join_roles(residual.attention_roles));
  std::string mlp_routes = table.string("mlp_routes", join_roles(residual.mlp_roles));
  std::string control = table.string("control", control_name(residual.control));
  int64_t layers_per_block = table.integer_between("layers_per_block", residual.layers_per_block, 0, model.layers);
  int64_t heads = table.integer_between("depth_heads", residual.depth_heads, 1, model.width);
  if (table.has("blocks")) {
    int64_t blocks = table.integer_between("blocks", 0, 1, model.layers);
    if (table.has("layers_per_block"))
      fail_input("{}: give either blocks or layers_per_block", table.where("blocks"));
    if (model.layers % blocks != 0)
      fail_input("{}: {} layers are not divided by {}", table.where("blocks"), model.layers, blocks);
    layers_per_block = model.layers / blocks;
  }
  table.finish();
  if (residual.attention_roles.empty()) return;
  residual.attention_roles = parse_attention_roles(attention_routes);
  residual.mlp_roles = parse_mlp_roles(mlp_routes);
  residual.control = parse_control(control);
  residual.depth_heads = heads;
  // Full AttnRes has no blocks by definition.
  if (residual.layers_per_block != 0) residual.layers_per_block = layers_per_block;
}

}  // namespace

ModelConfig read_model_config(Config& config, const std::string& variant) {
  Config table = config.table("model");
  ModelConfig model;
  if (table.has("preset")) model = preset(table.string("preset"));
  override_size(table, "layers", model.layers);
  override_size(table, "width", model.width);
  override_size(table, "heads", model.heads);
  override_size(table, "mlp_hidden", model.mlp_hidden);
  override_size(table, "vocabulary", model.vocabulary);
  override_size(table, "context", model.context);
  model.rope_theta = table.number("rope_theta", model.rope_theta);
  model.norm_eps = table.number("norm_eps", model.norm_eps);
  table.finish();
  read_residual_config(config.table("residual"), model, variant);
  check_model_config(model);
  return model;
}

TrainConfig read_train_config(Config table, int64_t context) {
  TrainConfig train;
  train.tokens = table.integer_between("tokens", table.integer("tokens"), 1, kMaxTokens);
  train.batch_windows = table.integer_between("batch_windows", table.integer("batch_windows"), 1, kMaxWindows);
  train.micro_batch_windows =
      table.integer_between("micro_batch_windows", train.batch_windows, 1, train.batch_windows);
  train.activation_checkpointing = table.boolean("activation_checkpointing", false);
  const std::string precision = table.string("precision", "fp32");
  if (precision != "fp32" && precision != "bf16")
    fail_input("{}: unknown precision '{}', expected fp32 or bf16", table.where("precision"), precision);
  train.bfloat16 = precision == "bf16";
  train.learning_rate = table.number_between("learning_rate", table.number("learning_rate"), 0, 100);
  std::string schedule = table.string("schedule", "cosine");
  if (schedule == "wsd") {
    train.schedule = Schedule::kWarmupStableDecay;
  } else if (schedule != "cosine") {
    fail_input("{}: unknown schedule '{}'; did you mean '{}'?", table.where("schedule"), schedule,
               nearest_name(schedule, {"cosine", "wsd"}));
  }
  int64_t steps = train.steps(context);
  train.warmup_steps = table.integer_between("warmup_steps", 0, 0, kMaxSteps);
  if (train.warmup_steps >= steps) {
    fail_input("{}: {} warm-up steps leave nothing of the run's {}", table.where("warmup_steps"),
               train.warmup_steps, steps);
  }
  train.decay = read_decay(table, train.schedule, table.string("decay", "end"));
  train.decay_fraction = table.number_between("decay_fraction", train.decay_fraction, 0, 1);
  train.final_learning_rate_fraction =
      table.number_between("final_learning_rate_fraction", train.final_learning_rate_fraction, 0, 1);
  train.weight_decay = table.number_between("weight_decay", train.weight_decay, 0, 100);
  train.beta1 = table.number_between("beta1", train.beta1, 0, 0.9999999);
  train.beta2 = table.number_between("beta2", train.beta2, 0, 0.9999999);
  train.epsilon = table.number_between("epsilon", train.epsilon, 1e-30, 1);
  train.gradient_clip = table.number_between("gradient_clip", train.gradient_clip, 0, 1e9);
  train.spike_threshold = table.number_between("spike_threshold", 0, 0, 1e9);
  train.skip_spikes = table.boolean("skip_spikes", false);
  if (train.skip_spikes && train.spike_threshold == 0)
    fail_input("{}: without train.spike_threshold there are no spikes", table.where("skip_spikes"));
  if (table.has("milestones")) train.milestones = table.integers("milestones");
  int64_t previous = 0;
  for (int64_t milestone : train.milestones) {
    if (milestone <= previous || milestone > train.tokens) {
      fail_input("{}: milestones must ascend from 1 to train.tokens = {}", table.where("milestones"), train.tokens);
    }
    previous = milestone;
  }
  if (train.milestones.empty() || train.milestones.back() != train.tokens) train.milestones.push_back(train.tokens);
  if (train.decay == Decay::kMilestones) {
    const int64_t begin = decay_begin(train, train.steps_for(train.milestones[0], context));
    if (begin <= train.warmup_steps) {
      fail_input(
          "{}: the decay to the first milestone would begin after step {}, within the {} steps of the warm-up",
          table.where("milestones"), begin, train.warmup_steps);
    }
  }
  train.validation_interval = table.integer_between("validation_interval", 0, 0, kMaxSteps);
  train.checkpoint_interval = table.integer_between("checkpoint_interval", 0, 0, kMaxSteps);
  train.log_interval = table.integer_between("log_interval", train.log_interval, 1, kMaxSteps);
  train.threads = table.integer_between("threads", 0, 0, 1024);
  train.shard_optimizer = table.boolean("shard_optimizer", true);
  if (train.threads == 0) train.threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  if (table.has("initial_checkpoint")) {
    train.initial_checkpoint = find_checkpoint(table.string("initial_checkpoint"));
    verify_checkpoint(train.initial_checkpoint);
    train.initial_weights = checkpoint_weights_checksum(train.initial_checkpoint);
  }
  table.finish();
  return train;
}

RunConfig read_run_config(Config& config) {
  RunConfig run;
  run.seed = static_cast<uint64_t>(config.integer_between("seed", 1, 0, INT64_MAX));
  if (config.has("data_order_seed")) {
    run.data_order_seed = static_cast<uint64_t>(config.integer_between("data_order_seed", 0, 0, INT64_MAX));
  }
  run.model = read_model_config(config);
  Config data = config.table("data");
  run.data_folder = data.string("folder");
  data.finish();
  run.train = read_train_config(config.table("train"), run.model.context);
  config.finish();
  return run;
}

Json run_config_to_json(const RunConfig& config) {
  const TrainConfig& train = config.train;
  Json json = {{"seed", config.seed},
               {"model", model_config_to_json(config.model)},
               {"data", {{"folder", config.data_folder.string()}}},
               {"train",
                {{"tokens", train.tokens},
                 {"batch_windows", train.batch_windows},
                 {"micro_batch_windows", train.micro_batch_windows},
                 {"learning_rate", train.learning_rate},
                 {"schedule", train.schedule == Schedule::kCosine ? "cosine" : "wsd"},
                 {"warmup_steps", train.warmup_steps},
                 {"decay_fraction", train.decay_fraction},
                 {"final_learning_rate_fraction", train.final_learning_rate_fraction},
                 {"weight_decay", train.weight_decay},
                 {"beta1", train.beta1},
                 {"beta2", train.beta2},
                 {"epsilon", train.epsilon},
                 {"gradient_clip", train.gradient_clip},
                 {"milestones", train.milestones},
                 {"validation_interval", train.validation_interval},
                 {"checkpoint_interval", train.checkpoint_interval},
                 {"log_interval", train.log_interval},
                 {"threads", train.threads}}}};
  // Only where they are given, so that the hashes of runs without them stay what they are.
  if (config.order_seed() != config.seed) json["data_order_seed"] = config.order_seed();
  if (train.extendable()) json["train"]["decay"] = train.decay == Decay::kNone ? "none" : "milestones";
  if (train.spike_threshold > 0) {
    json["train"]["spike_threshold"] = train.spike_threshold;
    json["train"]["skip_spikes"] = train.skip_spikes;
  }
  if (train.bfloat16) json["train"]["precision"] = "bf16";
  if (train.activation_checkpointing) json["train"]["activation_checkpointing"] = true;
  if (!train.initial_weights.empty()) {
    json["train"]["initial_checkpoint"] = train.initial_checkpoint.string();
    json["train"]["initial_weights"] = train.initial_weights;
  }
  return json;
}

std::vector<std::string> differing_keys(const Json& a, const Json& b) {
  std::map<std::string, Json> flat_a = result_keys(a), flat_b = result_keys(b);
  std::vector<std::string> keys;
  for (const auto& [key, value] : flat_a) {
    auto other = flat_b.find(key);
    if (other == flat_b.end() || other->second != value) keys.push_back(key);
  }
  for (const auto& [key, value] : flat_b) {
    if (!flat_a.contains(key)) keys.push_back(key);
  }
  return keys;
}

std::string config_hash(const Json& canonical) {
  std::string text;
  for (const auto& [key, value] : result_keys(canonical)) text += format_text("{} = {}\n", key, dump_json(value));
  return checksum(text);
}

}  // namespace depthroute
