// The fused forms: kernels of ops/elementary_kernel.h with threads and autograd.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "io/error.h"
#include "ops/elementary_forms.h"
#include "ops/elementary_kernel.h"
#include "ops/tensor_data.h"

namespace depthroute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Less work than this many elements is not worth a thread.
constexpr int64_t kElementsPerThread = 1 << 15;
// Gradients that are sums over rows are summed over fixed blocks of rows, so that their bits do not depend on the
// number of threads: at least so many rows a block, at most so many blocks.
constexpr int64_t kRowsPerBlock = 64, kBlocks = 64;
// Logits that exist at a time.
constexpr int64_t kLogits = 1 << 24;

int64_t grain_of(int64_t width) {
  return at::divup(kElementsPerThread, std::max<int64_t>(1, width));
}

void check_first_order() {
  if (at::GradMode::is_enabled()) fail_run("a fused operation has no second derivative: use its reference form");
}

class FusedRmsNorm : public Function<FusedRmsNorm> {
 public:
  // inputs: x, and the weight if there is one (autograd takes no undefined tensor).
  static at::Tensor forward(AutogradContext* context, at::TensorList inputs, double eps) {
    const at::Tensor& x = inputs[0];
    at::Tensor dense = x.contiguous(), scale = inputs.size() > 1 ? inputs[1].contiguous() : at::Tensor();
    at::Tensor y = at::empty_like(dense), rstd = at::empty({rows_of(x)}, x.options());
    if (x.scalar_type() == at::kFloat) {
      compute<float>(dense, scale, eps, y, rstd);
    } else {
      compute<double>(dense, scale, eps, y, rstd);
    }
    context->save_for_backward({dense, scale, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    check_first_order();
    variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2];
    at::Tensor dy = gradients[0].contiguous(), dx = at::empty_like(x), sums;
    if (x.scalar_type() == at::kFloat) {
      sums = differentiate<float>(x, weight, rstd, dy, dx);
    } else {
      sums = differentiate<double>(x, weight, rstd, dy, dx);
    }
    if (!weight.defined()) return {dx, Variable()};
    return {dx, sums.to(weight.scalar_type()), Variable()};
  }

 private:
  static int64_t rows_of(const at::Tensor& x) { return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1); }

  template <typename T>
  static void compute(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y,
                      const at::Tensor& rstd) {
    RmsNormForward<T> norm{x.size(-1), eps, data<T>(x), data<T>(weight), data<T>(y), data<T>(rstd)};
    at::parallel_for(0, rstd.numel(), grain_of(norm.width),
                     [&](int64_t begin, int64_t end) { rms_norm_forward(norm, begin, end); });
  }

  // dx, and the gradient of the weight in double.
  template <typename T>
  static at::Tensor differentiate(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                                  const at::Tensor& dy, const at::Tensor& dx) {
    RmsNormBackward<T> norm{x.size(-1), data<T>(x), data<T>(weight), data<T>(rstd), data<T>(dy), data<T>(dx)};
    int64_t rows = rstd.numel(), width = norm.width;
    int64_t block = std::max(kRowsPerBlock, at::divup(rows, kBlocks)), blocks = at::divup(rows, block);
    at::Tensor partial = at::zeros({blocks, width}, at::kDouble);
    double* sums = weight.defined() ? partial.data_ptr<double>() : nullptr;
    at::parallel_for(0, blocks, at::divup(grain_of(width), block), [&](int64_t begin, int64_t end) {
      std::vector<T> room(static_cast<size_t>(width));
      for (int64_t b = begin; b < end; ++b) {
        rms_norm_backward(norm, b * block, std::min(rows, (b + 1) * block),
                          sums == nullptr ? nullptr : sums + b * width, room.data());
      }
    });
    return partial.sum(0);
  }
};

class FusedRope : public Function<FusedRope> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return turn(x, cosine, sine, false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    check_first_order();
    variable_list saved = context->get_saved_variables();
    return {turn(gradients[0], saved[0], saved[1], true), Variable(), Variable()};
  }

 private:
  static at::Tensor turn(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, bool back) {
    at::Tensor dense = x.contiguous(), y = at::empty_like(dense);
    if (x.scalar_type() == at::kFloat) {
      compute<float>(dense, cosine, sine, y, back);
    } else {
      compute<double>(dense, cosine, sine, y, back);
    }
    return y;
  }

  template <typename T>
  static void compute(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& y,
                      bool back) {
    Rotation<T> rotation{x.size(1),     x.size(2),  x.size(3),  data<T>(cosine),
                         data<T>(sine), data<T>(x), data<T>(y), back};
    at::parallel_for(0, x.size(0) * x.size(1), grain_of(x.size(2) * x.size(3)),
                     [&](int64_t begin, int64_t end) { rotate(rotation, begin, end); });
  }
};

class FusedSwiglu : public Function<FusedSwiglu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    at::Tensor dense_gate = gate.contiguous(), dense_up = up.contiguous(), y = at::empty_like(dense_gate);
    auto compute = [&]<typename T>(T) {
      at::parallel_for(0, y.numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
        swiglu_forward(data<T>(dense_gate), data<T>(dense_up), data<T>(y), begin, end);
      });
    };
    gate.scalar_type() == at::kFloat ? compute(0.0F) : compute(0.0);
    context->save_for_backward({dense_gate, dense_up});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    check_first_order();
    variable_list saved = context->get_saved_variables();
    at::Tensor dy = gradients[0].contiguous(), dgate = at::empty_like(saved[0]), dup = at::empty_like(saved[1]);
    auto compute = [&]<typename T>(T) {
      at::parallel_for(0, dy.numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
        swiglu_backward(data<T>(saved[0]), data<T>(saved[1]), data<T>(dy), data<T>(dgate), data<T>(dup), begin,
                        end);
      });
    };
    dy.scalar_type() == at::kFloat ? compute(0.0F) : compute(0.0);
    return {dgate, dup};
  }
};

// The gradients are made in the forward pass, while the logits are there, and scaled in the backward pass.
class FusedCrossEntropy : public Function<FusedCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& targets, bool recorded) {
    at::Tensor dense_targets = targets.contiguous(), losses = at::empty({hidden.size(0)}, at::kDouble), dhidden,
               dweight;
    if (recorded) {
      dhidden = at::empty_like(hidden, at::MemoryFormat::Contiguous);
      dweight = at::zeros_like(weight);
    }
    int64_t tokens = hidden.size(0), classes = weight.size(0);
    int64_t chunk = std::clamp<int64_t>(kLogits / std::max<int64_t>(1, classes), 1, std::max<int64_t>(1, tokens));
    at::Tensor room = at::empty({chunk, classes}, hidden.options());
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
      int64_t count = std::min(chunk, tokens - begin);
      at::Tensor part = hidden.narrow(0, begin, count), logits = room.narrow(0, 0, count);
      at::mm_out(logits, part, weight.t());
      auto compute = [&]<typename T>(T) {
        CrossEntropyRows<T> rows{classes, data<T>(logits), data<int64_t>(dense_targets) + begin,
                                 data<double>(losses) + begin, recorded};
        at::parallel_for(0, count, grain_of(classes),
                         [&](int64_t first, int64_t last) { cross_entropy_rows(rows, first, last); });
      };
      hidden.scalar_type() == at::kFloat ? compute(0.0F) : compute(0.0);
      if (!recorded) continue;
      at::Tensor slice = dhidden.narrow(0, begin, count);
      at::mm_out(slice, logits, weight);
      dweight.addmm_(logits.t(), part);
    }
    if (recorded) context->save_for_backward({dhidden, dweight});
    return losses.sum().to(hidden.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    check_first_order();
    variable_list saved = context->get_saved_variables();
    return {saved[0] * gradients[0], saved[1] * gradients[0], Variable(), Variable()};
  }
};

}  // namespace

at::Tensor rms_norm_fused(const at::Tensor& x, const at::Tensor& weight, double eps) {
  variable_list inputs = {x};
  if (weight.defined()) inputs.push_back(weight);
  return FusedRmsNorm::apply(at::TensorList(inputs), eps);
}

at::Tensor apply_rope_fused(const at::Tensor& x, const RopeTable& table) {
  return FusedRope::apply(x, table.cosine, table.sine);
}

at::Tensor swiglu_fused(const at::Tensor& gate, const at::Tensor& up) {
  return FusedSwiglu::apply(gate, up);
}

at::Tensor cross_entropy_sum_fused(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets) {
  bool recorded = at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  return FusedCrossEntropy::apply(hidden, weight, targets, recorded);
}

}  // namespace depthroute
