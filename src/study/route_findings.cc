#include "study/route_findings.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "io/format.h"
#include "study/statistics.h"

namespace depthroute {
namespace {

bool chooses(const DepthReadSummary& read) {
  return read.mean.size() >= 2;
}

bool collapsed(const DepthReadSummary& read) {
  return std::ranges::any_of(read.mean, [](double share) { return share >= kCollapsedShare; });
}

// Every token takes from one source, but not all from the same: a choice, and no collapse.
bool sharp(const DepthReadSummary& read) {
  return read.largest >= kSharpLargest && !collapsed(read);
}

bool even(const DepthReadSummary& read) {
  return read.entropy >= kEvenEntropy * std::log(static_cast<double>(read.mean.size()));
}

// "0, 2-4, 7"
std::string layer_list(const std::vector<int64_t>& layers) {
  std::vector<std::string> parts;
  for (size_t first = 0; first < layers.size();) {
    size_t last = first;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    parts.push_back(last > first ? format_text("{}-{}", layers[first], layers[last])
                                 : format_text("{}", layers[first]));
    first = last + 1;
  }
  return join_text(parts, ", ");
}

std::string route_name(const DepthReadSummary& read) {
  if (read.kind == "output") return "the output read";
  return read.kind == read.role ? format_text("the {} read", read.kind)
                                : format_text("the {} read's {} route", read.kind, read.role);
}

// "the mlp read in layers 1, 3-5; the output read": all reads that have a property, route by route.
std::string reads_with(const std::vector<DepthReadSummary>& reads,
                       const std::function<bool(const DepthReadSummary&)>& property) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<int64_t>> layers;
  for (const DepthReadSummary& read : reads) {
    if (!chooses(read) || !property(read)) continue;
    const std::string name = route_name(read);
    if (!layers.contains(name)) names.push_back(name);
    std::vector<int64_t>& list = layers[name];
    if (read.layer >= 0) list.push_back(read.layer);
  }
  for (std::string& name : names) {
    const std::vector<int64_t>& list = layers.at(name);
    if (!list.empty()) name += format_text(" in layer{} {}", list.size() == 1 ? "" : "s", layer_list(list));
  }
  return join_text(names, "; ");
}

// Sources, in the order of the reads, that get less than kDeadShare of an even share wherever they could be read.
std::vector<std::string> dead_sources(const std::vector<DepthReadSummary>& reads) {
  std::vector<std::string> names;
  std::map<std::string, bool> alive;
  for (const DepthReadSummary& read : reads) {
    if (!chooses(read)) continue;
    for (size_t i = 0; i < read.sources.size(); ++i) {
      const std::string& source = read.sources[i];
      if (!alive.contains(source)) names.push_back(source);
      const double even_share = 1 / static_cast<double>(read.mean.size());
      // What is not known is no evidence of death.
      alive[source] = alive[source] || !(read.mean[i] < kDeadShare * even_share);
    }
  }
  std::erase_if(names, [&](const std::string& name) { return alive.at(name); });
  return names;
}

// The mean over the layers whose routes have a choice: a layer that sees one source has no divergence to show.
double mean_divergence(const std::vector<DepthReadSummary>& reads, const std::vector<LayerDivergence>& divergence) {
  std::vector<double> values;
  for (const LayerDivergence& layer : divergence) {
    const bool choice = std::ranges::any_of(reads, [&](const DepthReadSummary& read) {
      return read.layer == layer.layer && read.role == "v" && chooses(read);
    });
    if (choice && std::isfinite(layer.per_token)) values.push_back(layer.per_token);
  }
  return values.empty() ? kNotANumber : mean(values);
}

}  // namespace

std::vector<std::string> route_findings(const std::vector<DepthReadSummary>& reads,
                                        const std::vector<LayerDivergence>& divergence) {
  if (std::ranges::none_of(reads, chooses)) return {};
  std::vector<std::string> findings;
  const std::string onto_one = reads_with(reads, collapsed), evenly = reads_with(reads, even),
                    one_each = reads_with(reads, sharp);
  if (!onto_one.empty()) {
    findings.push_back(
        format_text("Collapsed onto one source (a mean share of at least {:.2f}): {}.", kCollapsedShare, onto_one));
  }
  if (!evenly.empty()) {
    findings.push_back(
        format_text("Averages its sources without choosing (entropy at least {:.0f} % of an even mixture's): {}.",
                    kEvenEntropy * 100, evenly));
  }
  const std::vector<std::string> dead = dead_sources(reads);
  if (!dead.empty()) {
    findings.push_back(format_text(
        "Dead source{} (below {:.0f} % of an even share in every read that sees {}): {}.",
        dead.size() == 1 ? "" : "s", kDeadShare * 100, dead.size() == 1 ? "it" : "them", join_text(dead, ", ")));
  }
  const double apart = mean_divergence(reads, divergence);
  if (apart < kAlikeDivergence) {
    findings.push_back(format_text(
        "The query-key and value routes look at the same sources (mean divergence {:.4f} nats, below {}).", apart,
        kAlikeDivergence));
  }
  if (findings.empty()) findings.emplace_back("No route has collapsed, and no source is dead.");
  if (!one_each.empty()) {
    findings.push_back(format_text(
        "Takes from one source for each token, not the same for all (mean largest weight at least {:.2f}): {}.",
        kSharpLargest, one_each));
  }
  return findings;
}

}  // namespace depthroute
