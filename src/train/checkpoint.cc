#include "train/checkpoint.h"

#include <ATen/ATen.h>

#include <cstdio>
#include <cstring>

#include "io/checksum.h"
#include "io/file.h"
#include "io/format.h"
#include "io/safetensors.h"
#include "model/tensor_file.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kConfigFile = "config.json";
constexpr const char* kStateFile = "state.json";
constexpr const char* kChecksumFile = "checksums.json";
constexpr const char* kStepPrefix = "step-";

std::map<std::string, SafetensorsEntry> entries_of(const std::map<std::string, at::Tensor>& tensors) {
  std::map<std::string, SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) entries[name] = view_as_entry(tensor);
  return entries;
}

void check_names(const SafetensorsFile& file, const std::map<std::string, at::Tensor>& expected) {
  for (const auto& [name, entry] : file.entries()) {
    if (!expected.contains(name))
      fail_input("'{}': tensor '{}' does not belong to this model", file.path().string(), name);
  }
}

// Copies the file's tensors over those given.
void fill(const SafetensorsFile& file, const std::map<std::string, at::Tensor>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    at::Tensor stored = read_tensor(file, name);
    if (stored.sizes() != tensor.sizes() || stored.scalar_type() != tensor.scalar_type()) {
      fail_input("'{}': tensor '{}' is {} [{}], expected {} [{}]", file.path().string(), name,
                 c10::toString(stored.scalar_type()), join_text(stored.sizes(), ", "),
                 c10::toString(tensor.scalar_type()), join_text(tensor.sizes(), ", "));
    }
    tensor.copy_(stored);
  }
}

std::string step_name(int64_t step) {
  return format_text("{}{:09}", kStepPrefix, step);
}

// Those in `parent`, by ascending step.
std::vector<fs::path> step_folders(const fs::path& parent) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::directory_entry& item : fs::directory_iterator(parent, error)) {
    if (item.path().filename().string().starts_with(kStepPrefix)) folders.push_back(item.path());
  }
  std::sort(folders.begin(), folders.end());  // the numbers have leading zeros
  return folders;
}

uint64_t bytes_of(const std::map<std::string, SafetensorsEntry>& entries) {
  uint64_t bytes = 0;
  for (const auto& [name, entry] : entries) bytes += entry.size;
  return bytes;
}

// All of the optimizer's state, whoever has it; of what other processes have, no data.
struct SharedState {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, int64_t> owners;  // of what is shared out
};

SharedState shared_state(const ParameterStore& parameters, const AdamW& optimizer) {
  SharedState all{.entries = entries_of(optimizer.state()), .owners = {}};
  for (size_t i = 0; i < optimizer.shares().owners.size(); ++i) {
    const auto& [name, parameter] = parameters.items()[i];
    for (const char* prefix : {"exp_avg.", "exp_avg_sq."}) {
      all.owners[prefix + name] = optimizer.shares().owners[i];
      if (optimizer.shares().own(i)) continue;
      SafetensorsEntry entry = view_as_entry(parameter.detach());
      entry.data = nullptr;
      all.entries[prefix + name] = entry;
    }
  }
  return all;
}

void send_share(const AdamW& optimizer, const SharedState& all, const ProcessGroup& group) {
  const std::map<std::string, at::Tensor> state = optimizer.state();
  for (const auto& [name, owner] : all.owners) {
    if (owner == group.rank()) group.send_to_first(state.at(name));
  }
}

// Better said before gigabytes are written than after; what is there stays either way.
void check_room(const fs::path& folder, uint64_t bytes) {
  constexpr uint64_t kHeaders = 1 << 16;
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < bytes + kHeaders) {
    fail_run("no room for a checkpoint in '{}': it takes {:.1f} MB, {:.1f} MB are free; make room and start again",
             folder.string(), static_cast<double>(bytes + kHeaders) / 1e6,
             static_cast<double>(space.available) / 1e6);
  }
}

bool is_checkpoint(const fs::path& folder) {
  return fs::exists(folder / kStateFile) && fs::exists(folder / kModelFile);
}

}  // namespace

void write_checkpoint(const fs::path& folder, const Transformer& model, const AdamW& optimizer,
                      const TrainingState& state, const ProcessGroup& group) {
  const SharedState shared = shared_state(model.parameters(), optimizer);
  if (!group.first()) {
    send_share(optimizer, shared, group);
    return;
  }
  at::Tensor received;
  const auto receive = [&](const std::string& name) {
    received = at::empty(shared.entries.at(name).shape, at::kFloat);
    group.receive(received, shared.owners.at(name));
    return static_cast<const char*>(received.const_data_ptr());
  };
  make_folder(folder.parent_path());
  std::map<std::string, at::Tensor> parameters;
  for (const auto& [name, parameter] : model.parameters().items()) parameters[name] = parameter.detach();
  const std::map<std::string, SafetensorsEntry> weights = entries_of(parameters);
  check_room(folder.parent_path(), bytes_of(weights) + bytes_of(shared.entries));
  AtomicFolder target(folder);
  // Hugging Face refuses weights without this note.
  write_safetensors(target.temporary() / kModelFile, weights, {{"format", "pt"}});
  write_safetensors(target.temporary() / kOptimizerFile, shared.entries, {}, receive);
  write_json(target.temporary() / kConfigFile, model_config_to_json(model.config()));
  write_json(target.temporary() / kStateFile,
             {{"format", "depthroute-checkpoint/1"},
              {"step", state.step},
              {"tokens", state.tokens},
              {"seconds", state.seconds},
              {"milestone", state.milestone},
              {"average_loss", state.average_loss ? Json(*state.average_loss) : Json()},
              {"skipped_in_a_row", state.skipped_in_a_row},
              {"config_hash", state.config_hash},
              {"data_hash", state.data_hash}});
  Json checksums;
  for (const char* file : {kModelFile, kOptimizerFile, kConfigFile, kStateFile}) {
    checksums[file] = file_checksum(target.temporary() / file);
  }
  write_json(target.temporary() / kChecksumFile, checksums);
  target.commit();
}

void verify_checkpoint(const fs::path& folder) {
  Json checksums = read_json(folder / kChecksumFile);
  for (const char* file : {kModelFile, kOptimizerFile, kConfigFile, kStateFile}) {
    auto expected = json_get<std::string>(checksums, file, format_text("'{}'", (folder / kChecksumFile).string()));
    if (file_checksum(folder / file) != expected) {
      fail_input("'{}' is damaged: its checksum is not the one in {}", (folder / file).string(), kChecksumFile);
    }
  }
}

std::string checkpoint_weights_checksum(const fs::path& folder) {
  return json_get<std::string>(read_json(folder / kChecksumFile), kModelFile,
                               format_text("'{}'", (folder / kChecksumFile).string()));
}

Transformer load_model(const fs::path& folder) {
  fs::path config_path = folder / kConfigFile;
  ModelConfig config = model_config_from_json(read_json(config_path), format_text("'{}'", config_path.string()));
  SafetensorsFile file(folder / kModelFile);
  std::map<std::string, at::Tensor> tensors;
  ParameterStore parameters;
  for (const ParameterSpec& spec : model_parameters(config)) {
    tensors[spec.name] = at::empty(spec.shape, at::kFloat);
    parameters.add(spec.name, tensors[spec.name]);
  }
  check_names(file, tensors);
  fill(file, tensors);
  for (auto& [name, tensor] : tensors) tensor.requires_grad_();
  return {config, std::move(parameters)};
}

void load_optimizer(const fs::path& folder, AdamW& optimizer) {
  const SafetensorsFile file(folder / kOptimizerFile);
  std::map<std::string, at::Tensor> state = optimizer.state();
  if (optimizer.shares().owners.empty()) check_names(file, state);
  fill(file, state);
}

TrainingState load_training_state(const fs::path& folder) {
  fs::path path = folder / kStateFile;
  Json json = read_json(path);
  std::string where = format_text("'{}'", path.string());
  TrainingState state = {.step = json_get<int64_t>(json, "step", where),
                         .tokens = json_get<int64_t>(json, "tokens", where),
                         .seconds = json_get<double>(json, "seconds", where),
                         .milestone = json_get<bool>(json, "milestone", where),
                         .config_hash = json_get<std::string>(json, "config_hash", where),
                         .data_hash = json_get<std::string>(json, "data_hash", where)};
  // Not in checkpoints of versions before these.
  if (json.contains("average_loss") && !json["average_loss"].is_null())
    state.average_loss = json_get<double>(json, "average_loss", where);
  if (json.contains("skipped_in_a_row"))
    state.skipped_in_a_row = json_get<int64_t>(json, "skipped_in_a_row", where);
  return state;
}

std::vector<fs::path> list_checkpoints(const fs::path& run_folder) {
  return step_folders(run_folder / "checkpoints");
}

std::vector<fs::path> list_branches(const fs::path& run_folder) {
  return step_folders(run_folder / "branches");
}

fs::path checkpoint_folder(const fs::path& run_folder, int64_t step) {
  return run_folder / "checkpoints" / step_name(step);
}

fs::path branch_folder(const fs::path& run_folder, int64_t step) {
  return run_folder / "branches" / step_name(step);
}

fs::path find_checkpoint(const fs::path& path) {
  if (is_checkpoint(path)) return path;
  std::vector<fs::path> folders = list_checkpoints(path);
  for (const fs::path& branch : list_branches(path)) {
    for (const fs::path& checkpoint : list_checkpoints(branch)) folders.push_back(checkpoint);
  }
  std::ranges::stable_sort(folders, {}, [](const fs::path& folder) { return folder.filename(); });
  if (folders.empty()) fail_input("'{}' is neither a checkpoint nor a run folder with checkpoints", path.string());
  return folders.back();
}

void set_aside_checkpoint(const fs::path& folder) {
  fs::path aside = folder.parent_path() / ("damaged-" + folder.filename().string());
  std::error_code error;
  fs::remove_all(aside, error);
  fs::rename(folder, aside, error);
  if (error) fail_run("cannot rename '{}': {}", folder.string(), error.message());
}

void remove_old_checkpoints(const fs::path& run_folder) {
  constexpr size_t kKept = 2;
  std::vector<fs::path> folders = list_checkpoints(run_folder);
  for (size_t i = 0; i + kKept < folders.size(); ++i) {
    std::error_code error;
    bool milestone = true;
    try {
      milestone = load_training_state(folders[i]).milestone;
    } catch (const InputError&) {
      continue;  // a damaged one is evidence; it is left for a person to look at
    }
    if (!milestone) fs::remove_all(folders[i], error);
  }
}

}  // namespace depthroute
