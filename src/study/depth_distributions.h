// Distributions over the sources of a depth read, [N, K, H]: their entropy and their divergence.
#pragma once
#include <ATen/ATen.h>

namespace depthroute {

// Over the sources, [N, K, H] -> [N, H], in nats; 0 log 0 is 0.
inline at::Tensor distribution_entropy(const at::Tensor& p) {
  return -at::xlogy(p, p).sum(1);
}

// Jensen-Shannon, JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2, [N, K, H] -> [N, H], in nats (at most ln 2).
inline at::Tensor jensen_shannon_divergence(const at::Tensor& p, const at::Tensor& q) {
  return distribution_entropy((p + q) / 2) - (distribution_entropy(p) + distribution_entropy(q)) / 2;
}

}  // namespace depthroute
