// Small text helpers for messages.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace depthroute {

// The candidate with the smallest edit distance (the first of several); empty where there are no candidates.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// For a terminal: names come from files, and none of them may send it control sequences. Control characters other than
// a line's end become '?'.
std::string printable(std::string text);

}  // namespace depthroute
