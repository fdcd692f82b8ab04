#include "study/charts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <regex>

namespace depthroute {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

// Every element is closed by its own name, in order; attribute values hold no stray quote or angle bracket.
void expect_well_formed(const std::string& markup) {
  const std::regex tag("<(/?)([a-zA-Z]+)((?:\\s[\\w:-]+=\"[^\"<>]*\")*)\\s*(/?)>");
  std::vector<std::string> open;
  size_t tags = 0;
  for (std::sregex_iterator it(markup.begin(), markup.end(), tag), end; it != end; ++it, ++tags) {
    const std::string name = (*it)[2];
    if ((*it)[1].length() > 0) {
      ASSERT_FALSE(open.empty()) << name;
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    } else if ((*it)[4].length() == 0) {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(tags, static_cast<size_t>(std::ranges::count(markup, '<'))) << "a '<' that is no tag";
}

void expect_finite(const std::string& svg) {
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(EscapeHtml, LeavesNoMarkupAndNoControlCharacters) {
  EXPECT_EQ(escape_html("<a href=\"x\" title='y'>&"), "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;");
  EXPECT_EQ(escape_html(std::string_view("a\0b\x1b", 4)),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd");
  EXPECT_EQ(escape_html("α – ok\n"), "α – ok\n");
}

TEST(RoundTicks, AreRoundAndInside) {
  const std::vector<double> ticks = round_ticks(0.03, 1.07, 5);
  ASSERT_EQ(ticks.size(), 5u);
  EXPECT_NEAR(ticks.front(), 0.2, 1e-12);
  EXPECT_NEAR(ticks.back(), 1.0, 1e-12);
  EXPECT_EQ(round_ticks(-3, 3, 3), (std::vector<double>{-2, 0, 2}));
  EXPECT_TRUE(round_ticks(1, 1, 5).empty());
  EXPECT_TRUE(round_ticks(0, kInf, 5).empty());
  // A step below the resolution of the values ends all the same.
  EXPECT_LE(round_ticks(1e16, 1e16 + 2, 5).size(), 11u);
}

TEST(LineChart, BreaksTheLineWhereAPointIsNotFinite) {
  LineChart chart{{"id-1", "a < b", "two & more", "x", "y"}};
  chart.lines.push_back({"one", 0, false, {{0, 1, true}, {1, 2}, {2, kNan, true}, {3, kInf}, {4, 5, true}}});
  const std::string svg = line_chart(chart);
  expect_well_formed(svg);
  expect_finite(svg);
  const std::regex path("<path class=\"line series0\" d=\"(M[^\"]*)\"");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(svg, match, path));
  const std::string drawn = match[1];
  EXPECT_EQ(std::ranges::count(drawn, 'M'), 2);
  EXPECT_EQ(std::ranges::count(drawn, 'L'), 1);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_EQ(svg, line_chart(chart));
}

TEST(LineChart, HasFiniteCoordinatesForEveryOddInput) {
  const std::vector<std::vector<ChartPoint>> odd = {{},
                                                    {{1, 1, true}},
                                                    {{kNan, kNan}},
                                                    {{0, 3, true}, {1, 3, true}},
                                                    {{0, 1e300}, {1, -1e300}},
                                                    {{0, 0}, {0, 0}}};
  for (const auto& points : odd) {
    LineChart chart{{"id", "t", "d", "x", "y"}};
    chart.lines.push_back({"one", 3, false, points});
    chart.y_from_share = 0.1;
    expect_well_formed(line_chart(chart));
    expect_finite(line_chart(chart));
  }
}

// The numbers of the y axis end 7 left of the plot; the axis' name stands on the first 20.
TEST(LineChart, MakesRoomForLongNumbers) {
  const auto first_grid_line = [](double least, double most) {
    LineChart chart{{"c", "t", "d", "x", "y"}};
    ChartLine line{"l", 0};
    line.points = {{0, least}, {1, most}};
    chart.lines.push_back(line);
    const std::string svg = line_chart(chart);
    const size_t at = svg.find("class=\"grid\" x1=\"");
    return std::stod(svg.substr(at + 17));
  };
  EXPECT_EQ(first_grid_line(1, 3), 66);
  EXPECT_GE(first_grid_line(-0.00012, 0.00013) - 7 - 20, 6 * 8) << "eight characters, -0.00005";
}

TEST(DifferenceChart, KeepsThePairsVisibleBesideAHugeInterval) {
  DifferenceChart chart{{"d", "t", "d", "x", "y"}};
  chart.groups.push_back({"1 M", {-0.01, -0.02}, -0.015, -9.0, 9.0});
  chart.groups.push_back({"2 M", {kNan}, kNan, kNan, kInf});
  chart.groups.push_back({"3 M"});
  const std::string svg = difference_chart(chart);
  expect_well_formed(svg);
  expect_finite(svg);
  const std::regex ring("<circle class=\"seed\" cx=\"[0-9.]+\" cy=\"([0-9.]+)\"");
  std::vector<double> heights;
  for (std::sregex_iterator it(svg.begin(), svg.end(), ring), end; it != end; ++it)
    heights.push_back(std::stod((*it)[1]));
  ASSERT_EQ(heights.size(), 2u);
  EXPECT_GT(heights[1] - heights[0], 20) << "pixels between the pairs";
}

TEST(HeatMap, LeavesAbsentCellsOut) {
  HeatMap map{{"h", "t", "d"},
              {"layer 0", "layer <1>"},
              {"embedding", "block 1", "a very long source name indeed"},
              {{1, kNan, kNan}, {0.25, 0.5, kInf}}};
  map.largest = 0.5;
  const std::string svg = heat_map(map);
  expect_well_formed(svg);
  expect_finite(svg);
  const std::regex cells("class=\"cell heat");
  EXPECT_EQ(std::distance(std::sregex_iterator(svg.begin(), svg.end(), cells), std::sregex_iterator()), 3);
  EXPECT_NE(svg.find("heat10\""), std::string::npos) << "0.25 of 0.5 is the middle level";
  map.largest = 0;
  expect_finite(heat_map(map));
}

TEST(HeatColours, ReadableAtEveryLevelLightAndDark) {
  EXPECT_NEAR(contrast({0, 0, 0}, {255, 255, 255}), 21, 1e-9);
  for (bool dark : {false, true}) {
    for (int level = 0; level < kHeatLevels; ++level) {
      const HeatColour colour = heat_colour(level, dark);
      EXPECT_GE(contrast(colour.fill, colour.text), 4.5) << level << dark;
    }
  }
}

// Text and lines in the page's colours: at least 4.5 to 1, on the page in either mode.
TEST(SeriesColours, ReadableLightAndDark) {
  const std::string css = chart_style();
  const std::regex definition("--s[0-9]:#([0-9a-f]{6})");
  int found = 0;
  for (std::sregex_iterator it(css.begin(), css.end(), definition), end; it != end; ++it, ++found) {
    const int rgb = std::stoi((*it)[1], nullptr, 16);
    const Colour page = found < kSeriesStyles ? Colour{255, 255, 255} : Colour{24, 28, 34};
    EXPECT_GE(contrast({rgb >> 16, rgb >> 8 & 255, rgb & 255}, page), 4.5) << it->str();
  }
  EXPECT_EQ(found, 2 * kSeriesStyles);
}

}  // namespace
}  // namespace depthroute
