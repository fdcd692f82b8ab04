// What variants with depth reads share: where the reads are, what their parameters are called, and which of a read's
// routes feeds which projection.
#pragma once
#include <string>
#include <vector>

#include "residual/residual.h"

namespace depthroute {

// "model.layers.N.self_attn", "model.layers.N.mlp": the sites of depth reads, see DepthProbe.
std::string attention_site(int64_t layer);
std::string mlp_site(int64_t layer);
// Number of sublayers before a site: 2N, 2N + 1, and 2L for any other (the read behind the last layer).
int64_t sublayers_before(const std::string& site, int64_t layers);

// "SITE.depth_read.query.ROLE", "SITE.depth_read.norm.weight"
std::string query_name(const std::string& site, const std::string& role);
std::string key_norm_name(const std::string& site);
// The norms in front of the sublayers.
std::string input_norm_name(int64_t layer);
std::string mlp_norm_name(int64_t layer);

// InputError where blocks or heads do not fit the model, or its largest read would see more sources than there may be.
void check_depth_reads(const ResidualConfig& config, const ResidualShape& shape, int64_t most_sources);

// Appends the parameters of a read. Queries start at zero, so every model starts from the uniform mixture.
void add_read_parameters(const std::string& site, const std::vector<std::string>& roles, int64_t width,
                         std::vector<ParameterSpec>* specs);

// The parameters of a model's reads as they are in a ParameterStore, and reads that tell the probe.
class DepthReader {
 public:
  DepthReader(const ParameterStore& parameters, const ResidualConfig& config, double eps, DepthProbe probe)
      : parameters_(parameters),
        probe_(std::move(probe)),
        memory_(config.depth_heads, eps, config.implementation) {}

  DepthMemory& memory() { return memory_; }
  std::vector<at::Tensor> queries(const std::string& site, const std::vector<std::string>& roles) const;
  // A read to announce to the memory (DepthMemory::plan).
  PlannedRead planned(const std::string& site, const std::vector<at::Tensor>& queries) const {
    return {queries, parameters_.get(key_norm_name(site))};
  }
  // One mixture a query; roles name the routes for the probe.
  std::vector<at::Tensor> read(const std::string& site, const std::vector<std::string>& roles,
                               const std::vector<at::Tensor>& queries);

 private:
  const ParameterStore& parameters_;
  DepthProbe probe_;
  DepthMemory memory_;
};

// routes[i] feeds the projections in roles[i]; one route feeds all.
AttentionInputs attention_inputs_of(const std::vector<at::Tensor>& routes, const std::vector<std::string>& roles);
MlpInputs mlp_inputs_of(const std::vector<at::Tensor>& routes, const std::vector<std::string>& roles);

}  // namespace depthroute
