#include "model/tensor_file.h"

#include <ATen/ATen.h>

#include <cstring>

#include "io/error.h"

namespace depthroute {
namespace {

const std::map<std::string, at::ScalarType>& dtypes() {
  static const std::map<std::string, at::ScalarType> all = {
      {"F64", at::kDouble}, {"F32", at::kFloat}, {"BF16", at::kBFloat16}, {"I64", at::kLong}, {"I32", at::kInt}};
  return all;
}

}  // namespace

at::Tensor read_tensor(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry& entry = file.entry(name);
  auto dtype = dtypes().find(entry.dtype);
  if (dtype == dtypes().end())
    fail_input("'{}', tensor '{}': dtype {} is not supported", file.path().string(), name, entry.dtype);
  at::Tensor tensor = at::empty(entry.shape, dtype->second);
  if (entry.size > 0) std::memcpy(tensor.data_ptr(), entry.data, entry.size);
  return tensor;
}

SafetensorsEntry view_as_entry(const at::Tensor& tensor) {
  if (!tensor.is_contiguous() || !tensor.device().is_cpu())
    fail_run("only contiguous CPU tensors are written to files");
  for (const auto& [name, type] : dtypes()) {
    if (type == tensor.scalar_type()) {
      return {name, tensor.sizes().vec(), static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
    }
  }
  fail_run("tensors of dtype {} cannot be written to files", c10::toString(tensor.scalar_type()));
}

}  // namespace depthroute
