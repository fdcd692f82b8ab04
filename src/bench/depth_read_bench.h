// The depth read against the memory it has to move.
#pragma once
#include <cstdint>

#include "bench/timing.h"

namespace depthroute {

struct DepthReadShape {
  int64_t tokens = 4096, width = 576, sources = 9, routes = 2, heads = 1;
};

// Seconds, float32. Reading, writing and copying move the sources' K N d values, in buffers of their own.
struct DepthReadFigures {
  DepthReadShape shape;
  double source_bytes = 0, written_bytes = 0;  // what a forward read has to read and to write
  Spread read, write, copy;
  Spread forward, forward_backward;
  Spread forward_reference;  // the definition in ATen operations
  // The reads of a block of four sublayers with R routes and one in turn, forward: each by itself, and as DepthMemory::plan
  // does them (in two phases from seven sources on).
  Spread block_one_phase, block_two_phases;

  // What a forward read takes at the measured speeds of reading and writing.
  double roofline_seconds() const { return read.median + write.median * written_bytes / source_bytes; }
};

// At least one round.
DepthReadFigures bench_depth_read(const DepthReadShape& shape, int64_t rounds);

Json depth_read_figures_to_json(const DepthReadFigures& figures);

}  // namespace depthroute
