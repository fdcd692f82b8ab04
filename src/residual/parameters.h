// Named parameters. Names are Hugging Face Llama's for everything a Llama has, so that its checkpoints can be read
// by others.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace depthroute {

enum class Initialisation { kZero, kOne, kNormal, kNewestSource };

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
  Initialisation initialisation = Initialisation::kNormal;
  double standard_deviation = 0;  // of kNormal; kNewestSource is 1 in the last column and 0 elsewhere
};

class ParameterStore {
 public:
  using Item = std::pair<std::string, at::Tensor>;

  void add(const std::string& name, at::Tensor tensor);
  bool contains(const std::string& name) const { return index_.contains(name); }
  // RunError where there is no such parameter: names come from the code, not from a user.
  const at::Tensor& get(const std::string& name) const;
  // In the order in which they were added.
  const std::vector<Item>& items() const { return items_; }
  int64_t element_count() const;

 private:
  std::vector<Item> items_;
  std::map<std::string, size_t> index_;
};

// "model.layers.N"
std::string layer_name(int64_t layer);

}  // namespace depthroute
