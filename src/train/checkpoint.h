// A checkpoint is a folder that is there as a whole or not at all:
//   model.safetensors      weights, by Hugging Face Llama names
//   config.json            sizes and variant (for the standard variant: a Llama's config)
//   optimizer.safetensors  AdamW's state
//   state.json             where the run stands
//   checksums.json         XXH3 of each of the files above
// A run keeps them under RUN/checkpoints/step-000000123.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "model/transformer.h"
#include "train/optimizer.h"
#include "train/process_group.h"

namespace depthroute {

struct TrainingState {
  int64_t step = 0;    // optimizer steps done
  int64_t tokens = 0;  // tokens trained on
  double seconds = 0;  // of training, evaluation and checkpoints not counted
  bool milestone = false;
  // Of the look-out for spikes: the moving average of the loss (absent before the first step), and updates left out in a row.
  std::optional<double> average_loss{};
  int64_t skipped_in_a_row = 0;
  std::string config_hash, data_hash;
};

// Called by all processes of a group; the first one writes, and takes in the others' shares of the optimizer's state, a
// tensor at a time. RunError where the disk has no room for it (found out beforehand), or it cannot be written.
void write_checkpoint(const std::filesystem::path& folder, const Transformer& model, const AdamW& optimizer,
                      const TrainingState& state, const ProcessGroup& group = {});

// InputError, naming the file, where one is missing, truncated or changed.
void verify_checkpoint(const std::filesystem::path& folder);

// The checksum of the weights as the checkpoint states it.
std::string checkpoint_weights_checksum(const std::filesystem::path& folder);

// verify_checkpoint is up to the caller. InputError for tensors that are missing, left over or of another shape. Of the
// optimizer's state a process loads its share.
Transformer load_model(const std::filesystem::path& folder);
void load_optimizer(const std::filesystem::path& folder, AdamW& optimizer);
TrainingState load_training_state(const std::filesystem::path& folder);

// Folders of a run's checkpoints by ascending step.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run_folder);
std::filesystem::path checkpoint_folder(const std::filesystem::path& run_folder, int64_t step);
// The folder of the branch that decays to the milestone at `step`; a run folder but for run.json.
std::filesystem::path branch_folder(const std::filesystem::path& run_folder, int64_t step);
std::vector<std::filesystem::path> list_branches(const std::filesystem::path& run_folder);
// `path` itself if it is a checkpoint, or the checkpoint of the run folder `path`, or of a branch of it, with the most
// steps. InputError where there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);
// Renames a damaged checkpoint, so that it is evidence and no checkpoint any more. RunError where that fails.
void set_aside_checkpoint(const std::filesystem::path& folder);
// Removes all but the newest two and the milestones.
void remove_old_checkpoints(const std::filesystem::path& run_folder);

}  // namespace depthroute
