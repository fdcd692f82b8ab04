// A study: matched runs of several variants over several seeds, frozen before the first result. One TOML file
// describes it:
//
//   name = "quickstart"
//   variants = ["standard", "block_attnres", "rd_attnres"]
//   seeds = [1, 2]
//   [[comparisons]]                    # differences are variant minus baseline
//   variant = "rd_attnres"
//   baseline = "block_attnres"
//   [decision]                         # written before, applied after: see DecisionRule in results.h
//   milestone = 2_000_000              # tokens; default: the last
//   minimal_difference = 0.0           # nats a token
//   test = "t"                         # t, sign or permutation
//   level = 0.05
//   correction = "none"                # for the number of comparisons: none or holm
//   [model], [residual], [data], [train] as in a run's config (train.milestones are the study's)
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/run_config.h"

namespace depthroute {

struct StudyRun {
  int64_t index = 0;
  std::string variant;
  RunConfig config;

  std::string name() const;  // "rd_attnres-seed1", its folder under STUDY/runs
};

struct StudyConfig {
  std::string name;
  Json protocol;               // the canonical form, every default filled in
  std::string hash;            // of all of it that shapes the results
  std::vector<StudyRun> runs;  // seed by seed, so that an unfinished study has whole pairs
};

StudyConfig read_study_config(Config& config);

}  // namespace depthroute
