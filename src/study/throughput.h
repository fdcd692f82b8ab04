// The speed of a study's variants as one machine measured it (`bench step --study FILE --json`), in place of the seconds
// its runs took wherever they were: runs of a job array share machines with others, and pairs may lie on two of them.
#pragma once
#include <filesystem>

#include "study/results.h"

namespace depthroute {

// InputError where the file is no such measurement, belongs to another protocol (its hash), or lacks a variant.
Throughput read_throughput(const std::filesystem::path& path, const StudyResults& study);

// Sets the training seconds of every event of every run to its tokens by the variant's measured tokens a second, so that
// all that follows (curves and pairs at equal time, costs) rests on the measurement, and keeps it in study.throughput.
void apply_throughput(const Throughput& throughput, StudyResults& study);

}  // namespace depthroute
