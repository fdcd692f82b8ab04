// Facts about the machine and this process, for the record of a run.
#pragma once
#include <cstdint>
#include <string>

namespace depthroute {

// "AMD EPYC, 2 cores, 23 GiB"
std::string machine_description();
// The largest resident memory of this process since the last reset, in bytes; 0 where the system does not say.
int64_t peak_memory_bytes();
void reset_peak_memory();

}  // namespace depthroute
