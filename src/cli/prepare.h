// `depthroute prepare`: documents to tokenizer, token shards, split and manifest (src/data/prepare.h).
#pragma once
#include <CLI/App.hpp>

namespace depthroute {

void add_prepare_command(CLI::App& app);

}  // namespace depthroute
