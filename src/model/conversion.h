// A model of one variant from a model of another.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "model/transformer.h"

namespace depthroute {

struct Conversion {
  Transformer model;
  // Names of tensors, in the model's order: copied as they are; copied from a tensor of another name (name, source);
  // initialised, since the source has nothing for them; and those of the source that have no place.
  std::vector<std::string> copied;
  std::vector<std::pair<std::string, std::string>> copied_from;
  std::vector<std::string> initialised;
  std::vector<std::string> left_out;
};

// Tensors are matched by name. A route that splits one of the source's (qk and v of qkv; q and k of qk; g and u of
// mlp) starts with that one's query, and MUDDFormer's input norms with the layer's, so that Block AttnRes as
// RD-AttnRes, or that as fully split, computes the same function. What is left is drawn from the seed as in a new
// model. InputError, naming the key, where the two have other sizes.
Conversion convert_model(const Transformer& source, const ModelConfig& config, uint64_t seed);

}  // namespace depthroute
