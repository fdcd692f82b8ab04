// A small prepared corpus and a small model, for tests.
#pragma once
#include <filesystem>
#include <string>

#include "data/prepare.h"
#include "data/test_support.h"
#include "train/run_config.h"

namespace depthroute {

inline void make_test_data(const std::filesystem::path& folder) {
  TestFolder source;
  std::string text;
  for (const std::string& document : made_up_documents(400)) text += document + "\n\n";
  PrepareOptions options;
  options.inputs = {source.file("corpus.txt", text)};
  options.output = folder;
  options.vocabulary_size = 300;
  options.split.fractions = {0.8, 0.1, 0.1};
  prepare(options);
}

inline ModelConfig test_model(int64_t vocabulary, const std::string& variant = "rd_attnres") {
  ModelConfig config = preset("tiny");
  config.layers = 2;
  config.vocabulary = vocabulary;
  config.residual = named_residual_config(variant, config.layers);
  return config;
}

}  // namespace depthroute
