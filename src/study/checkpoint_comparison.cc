#include "study/checkpoint_comparison.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>

#include "io/format.h"
#include "study/depth_distributions.h"
#include "study/diagnostics.h"

namespace depthroute {
namespace {

// One read's distributions in a batch, [N, K, H].
struct ProbedRead {
  std::string site, role;
  at::Tensor probabilities;

  bool is(const ProbedRead& other) const { return site == other.site && role == other.role; }
  std::string name() const { return format_text("{} {}", site, role); }
};

std::vector<ProbedRead> probe_batch(const Transformer& model, const at::Tensor& token_ids,
                                    const at::Tensor& targets, double* loss) {
  std::vector<ProbedRead> reads;
  DepthProbe probe = [&](const std::string& site, const std::string& role, const at::Tensor& p) {
    reads.push_back({site, role, p.to(at::kDouble)});
  };
  *loss += model.loss_sum(token_ids, targets, probe).item<double>();
  return reads;
}

// Sums over tokens and heads.
struct Sums {
  at::Tensor mine, others;  // [K]
  double divergence = 0, count = 0;

  void add(const at::Tensor& p, const at::Tensor& q) {
    const auto summed = [](const at::Tensor& sum, const at::Tensor& part) {
      return sum.defined() ? sum + part.sum({0, 2}) : part.sum({0, 2});
    };
    mine = summed(mine, p), others = summed(others, q);
    divergence += jensen_shannon_divergence(p, q).sum().item<double>();
    count += static_cast<double>(p.size(0) * p.size(2));
  }
  double of_means() const {
    const auto distribution = [&](const at::Tensor& sum) { return (sum / count).view({1, -1, 1}); };
    return jensen_shannon_divergence(distribution(mine), distribution(others)).item<double>();
  }
};

class Comparer {
 public:
  Comparer(const Transformer& model, const Transformer& other) : model_(model), other_(other) {}

  void add(const at::Tensor& token_ids, const at::Tensor& targets) {
    const std::vector<ProbedRead> mine = probe_batch(model_, token_ids, targets, &result_.loss);
    const std::vector<ProbedRead> others = probe_batch(other_, token_ids, targets, &result_.other_loss);
    if (result_.reads.empty() && result_.unmatched.empty()) match(mine, others);
    for (const ReadChange& read : result_.reads) {
      const auto named = [&](const ProbedRead& probed) {
        return probed.site == read.site && probed.role == read.role;
      };
      sums_[{read.site, read.role}].add(std::ranges::find_if(mine, named)->probabilities,
                                        std::ranges::find_if(others, named)->probabilities);
    }
  }

  CheckpointComparison result(int64_t tokens) {
    result_.tokens = tokens;
    result_.loss /= static_cast<double>(tokens), result_.other_loss /= static_cast<double>(tokens);
    for (ReadChange& read : result_.reads) {
      const Sums& sums = sums_.at({read.site, read.role});
      read.per_token = sums.divergence / sums.count, read.of_means = sums.of_means();
    }
    return result_;
  }

 private:
  bool same_sources(const ProbedRead& mine, const ProbedRead& others) const {
    return mine.is(others) && mine.probabilities.sizes() == others.probabilities.sizes() &&
           model_.residual().source_names(mine.site) == other_.residual().source_names(others.site);
  }

  void match(const std::vector<ProbedRead>& mine, const std::vector<ProbedRead>& others) {
    for (const ProbedRead& read : mine) {
      if (std::ranges::any_of(others, [&](const ProbedRead& candidate) { return same_sources(read, candidate); })) {
        result_.reads.push_back({read.site, read.role});
      } else {
        result_.unmatched.push_back(read.name());
      }
    }
    for (const ProbedRead& read : others) {
      const bool matched =
          std::ranges::any_of(mine, [&](const ProbedRead& candidate) { return same_sources(candidate, read); });
      const bool said = std::ranges::find(result_.unmatched, read.name()) != result_.unmatched.end();
      if (!matched && !said) result_.unmatched.push_back(read.name());
    }
  }

  const Transformer &model_, &other_;
  CheckpointComparison result_;
  std::map<std::pair<std::string, std::string>, Sums> sums_;
};

}  // namespace

CheckpointComparison compare_checkpoints(const Transformer& model, const Transformer& other,
                                         const TokenDataset& data, int64_t windows, int64_t batch_windows) {
  const auto must_agree = [](const char* what, int64_t mine, int64_t others) {
    if (mine != others)
      fail_input("the two checkpoints cannot be compared: one has a {} of {}, the other of {}", what, mine, others);
  };
  must_agree("context", model.config().context, other.config().context);
  must_agree("vocabulary", model.config().vocabulary, other.config().vocabulary);
  at::NoGradGuard no_grad;
  Comparer comparer(model, other);
  const int64_t tokens = for_first_windows(
      data, model.config().context, windows, batch_windows,
      [&](const at::Tensor& token_ids, const at::Tensor& targets) { comparer.add(token_ids, targets); });
  return comparer.result(tokens);
}

Json checkpoint_comparison_to_json(const CheckpointComparison& comparison) {
  Json reads = Json::array();
  for (const ReadChange& read : comparison.reads) {
    reads.push_back(json_object(
        {{"site", read.site}, {"role", read.role}, {"per_token", read.per_token}, {"of_means", read.of_means}}));
  }
  return json_object({{"compared_tokens", comparison.tokens},
                      {"loss", comparison.loss},
                      {"against_loss", comparison.other_loss},
                      {"difference", comparison.difference()},
                      {"js_divergence", reads},
                      {"unmatched_reads", comparison.unmatched}});
}

}  // namespace depthroute
