#include "residual/parameters.h"

#include "io/error.h"
#include "io/format.h"

namespace depthroute {

void ParameterStore::add(const std::string& name, at::Tensor tensor) {
  if (!index_.emplace(name, items_.size()).second) fail_run("parameter '{}' is declared twice", name);
  items_.emplace_back(name, std::move(tensor));
}

const at::Tensor& ParameterStore::get(const std::string& name) const {
  auto found = index_.find(name);
  if (found == index_.end()) fail_run("the model has no parameter '{}'", name);
  return items_[found->second].second;
}

int64_t ParameterStore::element_count() const {
  int64_t count = 0;
  for (const Item& item : items_) count += item.second.numel();
  return count;
}

std::string layer_name(int64_t layer) {
  return format_text("model.layers.{}", layer);
}

}  // namespace depthroute
