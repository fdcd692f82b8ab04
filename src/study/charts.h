// Charts as inline SVG, made here: no script, no font, no network, and the same bytes for the same data. Colours
// are classes that the page's style sheet fills for light and dark (series0.., heat0.., axis, grid); what tells
// series apart is also the dash pattern and the shape of the markers, and every chart carries a <title> and a
// <desc> for those who do not see it. Coordinates are finite whatever the data: points that are not are left out
// and break the line.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace depthroute {

// Text for HTML and SVG content and attribute values; control characters become U+FFFD.
std::string escape_html(std::string_view text);

struct ChartPoint {
  double x = 0, y = 0;
  bool marked = false;
};

struct ChartLine {
  std::string name;
  int style = 0;       // colour, dash pattern and marker
  bool faint = false;  // a single seed behind its mean: thin, without markers
  std::vector<ChartPoint> points{};
};

struct ChartText {
  std::string id;  // unique in the page, [a-z0-9-]
  std::string title, description, x_label{}, y_label{};
};

struct LineChart {
  ChartText text;
  std::vector<ChartLine> lines{};
  // Only the points from this share of the x range on set the y range (the first steep part of a loss curve would
  // flatten the rest).
  double y_from_share = 0;
  bool whole_x = false;  // ticks at whole numbers only
};
std::string line_chart(const LineChart& chart);

// Differences by milestone: one mark a seed, the mean, and the interval of the mean. Zero is always in view; an
// interval much wider than the differences is cut off with an arrow.
struct DifferenceGroup {
  std::string label;
  std::vector<double> values{};  // one a seed
  std::optional<double> mean{};
  std::optional<double> low{}, high{};
};
struct DifferenceChart {
  ChartText text;
  std::vector<DifferenceGroup> groups{};
};
std::string difference_chart(const DifferenceChart& chart);

// Shares (0..1) as a matrix: NaN cells are absent. `largest` is the value of the deepest colour, shared by the maps
// to be compared.
struct HeatMap {
  ChartText text;
  std::vector<std::string> rows{}, columns{};
  std::vector<std::vector<double>> values{};  // [rows][columns]
  double largest = 1;
};
std::string heat_map(const HeatMap& map);

// A key of names and line samples for line charts, as an HTML list.
std::string chart_legend(const std::vector<std::pair<std::string, int>>& series);

inline constexpr int kSeriesStyles = 8;
inline constexpr int kHeatLevels = 21;

// The style sheet of all charts.
std::string chart_style();

// About `count` round numbers (1, 2 or 5 times a power of ten) that cover low..high from inside.
std::vector<double> round_ticks(double low, double high, int count);

struct Colour {
  int red = 0, green = 0, blue = 0;
};
// The fill of a heat level and the colour of the text on it (WCAG AA: at least 4.5 to 1), for light and dark pages.
struct HeatColour {
  Colour fill, text;
};
HeatColour heat_colour(int level, bool dark);
// WCAG 2.1 contrast ratio.
double contrast(const Colour& a, const Colour& b);

}  // namespace depthroute
