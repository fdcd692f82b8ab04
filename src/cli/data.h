// `depthroute data stats`: what a prepared folder holds, from its manifest.
#pragma once
#include <CLI/App.hpp>

namespace depthroute {

void add_data_command(CLI::App& app);

}  // namespace depthroute
