// The A/A study: what pairs differ by where there is nothing to find. One variant is trained twice a seed, from the same
// tensors on the same windows in two orders; any difference is chance, and a verdict on it would be a false alarm. The two
// runs of an ordinary pair see one order, which cancels in their difference: what these differ by is a bound on chance, far
// above it where the order matters much, and not the spread to test an effect against.
#pragma once
#include <filesystem>
#include <string>

#include "study/report_analysis.h"
#include "study/results.h"
#include "study/study_config.h"

namespace depthroute {

// The A/A study of one of the study's variants (empty: the first comparison's baseline): a study of its own, with its
// own hash. The second run of a seed has the name VARIANT-again and a data order that no seed of the study has.
// InputError where the study has no such variant, or no comparison to take it from.
StudyConfig calibration_study(const StudyConfig& study, const std::string& variant = "");

// What the A/A study in `folder` says about chance in `study`, at the milestone that decides there. InputError where the
// folder holds no A/A study, or one whose model, training or data are not those of `study`.
Calibration read_calibration(const std::filesystem::path& folder, const StudyResults& study);

// Beside an effect, in words: by how much pairs of nothing differ.
std::string calibration_sentence(const Calibration& calibration, const PairedResult& result);

}  // namespace depthroute
