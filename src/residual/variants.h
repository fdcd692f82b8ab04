// One maker per family of variants, called by make_residual.
#pragma once
#include <memory>
#include <vector>

#include "residual/residual.h"

namespace depthroute {

std::unique_ptr<Residual> make_standard_residual(const ResidualConfig& config, const ResidualShape& shape);
std::unique_ptr<Residual> make_delta_residual(const ResidualConfig& config, const ResidualShape& shape);
std::unique_ptr<Residual> make_denseformer(const ResidualConfig& config, const ResidualShape& shape);
std::unique_ptr<Residual> make_muddformer(const ResidualConfig& config, const ResidualShape& shape);
std::unique_ptr<Residual> make_attention_residual(const ResidualConfig& config, const ResidualShape& shape);

}  // namespace depthroute
