#include "ops/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "io/error.h"
#include "io/format.h"
#include "ops/attention_kernel.h"
#include "ops/tensor_data.h"

namespace depthroute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// query, key, value, output, log_sum; for the backward pass also the output's gradient and the three to be made.
template <typename T>
CausalAttention<T> attention_of(const variable_list& tensors) {
  const at::Tensor& query = tensors[0];
  CausalAttention<T> attention{query.size(0), query.size(1), query.size(2), query.size(3)};
  attention.scale = static_cast<T>(1 / std::sqrt(static_cast<double>(attention.head_width)));
  attention.query = data<T>(query);
  attention.key = data<T>(tensors[1]);
  attention.value = data<T>(tensors[2]);
  attention.output = data<T>(tensors[3]);
  attention.log_sum = data<T>(tensors[4]);
  return attention;
}

template <typename T>
void for_pieces(const CausalAttention<T>& attention, const at::TensorOptions& options,
                void (*work)(const CausalAttention<T>&, int64_t, int64_t, T*)) {
  int64_t room = attention_workspace(attention.positions, attention.head_width);
  at::parallel_for(0, attention.pieces(), 1, [&](int64_t begin, int64_t end) {
    at::Tensor workspace = at::empty({room}, options);
    work(attention, begin, end, data<T>(workspace));
  });
}

class FusedAttention : public Function<FusedAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value) {
    variable_list tensors = {query.contiguous(), key.contiguous(), value.contiguous()};
    tensors.push_back(at::empty_like(tensors[0]));
    tensors.push_back(at::empty({query.size(0), query.size(2), query.size(1)}, query.options()));
    auto compute = [&]<typename T>(T) {
      for_pieces<T>(attention_of<T>(tensors), tensors[4].options(), attention_forward<T>);
    };
    query.scalar_type() == at::kFloat ? compute(0.0F) : compute(0.0);
    context->save_for_backward(tensors);
    return tensors[3];
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      fail_run("causal attention: the fused form has no second derivative: use its reference form");
    }
    variable_list saved = context->get_saved_variables(), results = {at::empty_like(saved[0])};
    at::Tensor upstream = gradients[0].contiguous();
    auto compute = [&]<typename T>(T) {
      CausalAttention<T> attention = attention_of<T>(saved);
      at::DimVector shape = {attention.parts()};
      shape.append(saved[0].sizes().begin(), saved[0].sizes().end());
      at::Tensor key_parts = at::empty(shape, upstream.options()), value_parts = at::empty_like(key_parts);
      attention.output_gradient = data<T>(upstream);
      attention.query_gradient = data<T>(results[0]);
      attention.key_gradient = data<T>(key_parts);
      attention.value_gradient = data<T>(value_parts);
      for_pieces<T>(attention, saved[4].options(), attention_backward<T>);
      for (const at::Tensor& parts : {key_parts, value_parts})
        results.push_back(attention.parts() == 1 ? parts[0] : parts[0].add_(parts[1]));
    };
    upstream.scalar_type() == at::kFloat ? compute(0.0F) : compute(0.0);
    return results;
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            Implementation implementation) {
  if (query.dim() != 4 || key.sizes() != query.sizes() || value.sizes() != query.sizes()) {
    fail_input("causal attention: query, key and value have shapes [{}], [{}], [{}], expected one [B, T, heads, D]",
               join_text(query.sizes(), ", "), join_text(key.sizes(), ", "), join_text(value.sizes(), ", "));
  }
  bool known = query.scalar_type() == at::kFloat || query.scalar_type() == at::kDouble;
  if (implementation == Implementation::kFused && query.device().is_cpu() && known && query.numel() > 0) {
    return FusedAttention::apply(query, key, value);
  }
  // It wants [B, heads, T, D]: views, since it takes any strides.
  return at::scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), {},
                                          0.0,
                                          /*is_causal=*/true)
      .transpose(1, 2);
}

}  // namespace depthroute
