// Facts about the machine and this process, for the record of a run.
#pragma once
#include <cstdint>
#include <string>

namespace depthroute {

// "AMD EPYC, 2 cores, 23 GiB"
std::string machine_description();
double machine_memory_bytes();
// The resident memory of this process in bytes; 0 where the system does not say.
int64_t memory_bytes();
// The largest resident memory of this process since the last reset, in bytes; 0 where the system does not say.
int64_t peak_memory_bytes();
void reset_peak_memory();
// From now on freed memory stays with the process. Otherwise the C library maps large blocks anew at each step of a
// training, and the kernel zeroes their pages each time.
void keep_freed_memory();

}  // namespace depthroute
