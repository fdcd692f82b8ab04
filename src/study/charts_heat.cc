
#include <algorithm>
#include <array>
#include <cmath>

#include "io/format.h"

#include "study/charts.h"

namespace depthroute {
namespace {

// Series colours with at least 4.5 to 1 on the page, light and dark. Their order keeps neighbours apart for
// colour-blind readers too.
constexpr std::array<const char*, kSeriesStyles> kLight = {"#1f5fbf", "#b3420a", "#1b7a4b", "#8a3aa8",
                                                           "#8a6100", "#0b7285", "#b0275d", "#4d5866"};
constexpr std::array<const char*, kSeriesStyles> kDark = {"#7db3ff", "#ff9d63", "#62d39a", "#d79bf0",
                                                          "#e6bd55", "#66d3e6", "#ff8db5", "#b4c0cf"};
constexpr std::array<const char*, kSeriesStyles> kDashes = {"none", "7 3", "2 3", "9 3 2 3",
                                                            "12 4", "4 4", "1 4", "12 3 2 3 2 3"};

constexpr Colour kPage[2] = {{255, 255, 255}, {24, 28, 34}};
constexpr Colour kDeepest[2] = {{13, 58, 120}, {160, 208, 255}};

double channel(int value) {
  const double share = value / 255.0;
  return share <= 0.03928 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
}

double luminance(const Colour& c) {
  return 0.2126 * channel(c.red) + 0.7152 * channel(c.green) + 0.0722 * channel(c.blue);
}

std::string hex(const Colour& c) {
  return format_text("#{:02x}{:02x}{:02x}", c.red, c.green, c.blue);
}

std::string heat_rules(bool dark) {
  std::string css;
  for (int level = 0; level < kHeatLevels; ++level) {
    const HeatColour colour = heat_colour(level, dark);
    css += format_text(".heat{0}{{fill:{1}}}.heat .on{0}{{fill:{2}}}", level, hex(colour.fill), hex(colour.text));
  }
  return css;
}

std::string series_rules(bool dark) {
  std::string css;
  for (int i = 0; i < kSeriesStyles; ++i) css += format_text("--s{}:{};", i, (dark ? kDark : kLight)[i]);
  return ":root{" + css + "}";
}

// "block 3" -> "3", "embedding" -> "emb": what fits above a cell. The table below the map has the full names.
std::string short_name(const std::string& name) {
  if (name == "embedding") return "emb";
  if (name == "partial") return "part";
  if (name.starts_with("block ") && name.size() <= 9) return name.substr(6);
  return name;
}

// At most `most` code points.
std::string cut(const std::string& text, size_t most) {
  size_t points = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (starts && ++points > most) return text.substr(0, i) + "…";
  }
  return text;
}

struct HeatLayout {
  double cell_width = 31, cell_height = 24, left = 54, top = 24;
  bool numbers = true, slanted = false;
};

HeatLayout layout_of(const HeatMap& map) {
  HeatLayout layout;
  size_t longest = 0;
  for (const std::string& column : map.columns) longest = std::max(longest, short_name(column).size());
  if (map.columns.size() > 18) layout.cell_width = 18, layout.cell_height = 18, layout.numbers = false;
  layout.slanted = longest > 4 || (!layout.numbers && longest > 2);
  if (layout.slanted) layout.top = 28 + 5.0 * static_cast<double>(std::min<size_t>(longest, 16));
  return layout;
}

std::string column_label(const std::string& name, const HeatLayout& layout, double x) {
  const std::string text = escape_html(cut(short_name(name), 16));
  const double y = layout.top - 7;
  if (!layout.slanted)
    return format_text("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x, y, text);
  return format_text("<text x=\"{0:.1f}\" y=\"{1:.1f}\" transform=\"rotate(-50 {0:.1f} {1:.1f})\">{2}</text>", x, y,
                     text);
}

std::string cell(const HeatMap& map, size_t row, size_t column, const HeatLayout& layout) {
  const double value = map.values[row][column];
  if (!std::isfinite(value)) return {};
  const double x = layout.left + static_cast<double>(column) * layout.cell_width;
  const double y = layout.top + static_cast<double>(row) * layout.cell_height;
  const double share = map.largest > 0 ? std::clamp(value / map.largest, 0.0, 1.0) : 0;
  const int level = static_cast<int>(std::lround(share * (kHeatLevels - 1)));
  std::string svg = format_text(
      "<rect class=\"cell heat{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"2\"><title>{}, {}: "
      "{:.4f}</title></rect>",
      level, x + 0.75, y + 0.75, layout.cell_width - 1.5, layout.cell_height - 1.5, escape_html(map.rows[row]),
      escape_html(map.columns[column]), value);
  if (layout.numbers) {
    svg += format_text("<text class=\"on{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.2f}</text>", level,
                       x + layout.cell_width / 2, y + layout.cell_height / 2 + 4, value);
  }
  return svg;
}

}  // namespace

double contrast(const Colour& a, const Colour& b) {
  const double first = luminance(a), second = luminance(b);
  return (std::max(first, second) + 0.05) / (std::min(first, second) + 0.05);
}

HeatColour heat_colour(int level, bool dark) {
  const double share = static_cast<double>(level) / (kHeatLevels - 1);
  const auto mix = [&](int from, int to) { return static_cast<int>(std::lround(from + share * (to - from))); };
  const Colour &page = kPage[dark], &deepest = kDeepest[dark];
  // The lowest level keeps a tint, or an empty-looking cell could be taken for an absent one.
  HeatColour colour{
      {mix(dark ? 34 : 240, deepest.red), mix(dark ? 42 : 245, deepest.green), mix(dark ? 54 : 252, deepest.blue)},
      page};
  const Colour black{0, 0, 0}, white{255, 255, 255};
  colour.text = contrast(colour.fill, black) >= contrast(colour.fill, white) ? black : white;
  return colour;
}

std::string heat_map(const HeatMap& map) {
  const HeatLayout layout = layout_of(map);
  const double last_label = layout.slanted ? layout.top * 0.8 : 4;
  const double width = layout.left + static_cast<double>(map.columns.size()) * layout.cell_width + last_label;
  const double height = layout.top + static_cast<double>(map.rows.size()) * layout.cell_height + 4;
  std::string svg = format_text(
      "<svg class=\"heat\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" "
      "aria-labelledby=\"{2}-t {2}-d\" xmlns=\"http://www.w3.org/2000/svg\"><title id=\"{2}-t\">{3}</title><desc "
      "id=\"{2}-d\">{4}</desc>",
      width, height, map.text.id, escape_html(map.text.title), escape_html(map.text.description));
  for (size_t column = 0; column < map.columns.size(); ++column) {
    svg += column_label(map.columns[column], layout,
                        layout.left + (static_cast<double>(column) + 0.5) * layout.cell_width);
  }
  for (size_t row = 0; row < map.rows.size(); ++row) {
    svg += format_text("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", layout.left - 7,
                       layout.top + (static_cast<double>(row) + 0.5) * layout.cell_height + 4,
                       escape_html(map.rows[row]));
    for (size_t column = 0; column < map.columns.size(); ++column) svg += cell(map, row, column, layout);
  }
  return svg + "</svg>";
}

std::string chart_style() {
  std::string css = series_rules(false);
  for (int i = 0; i < kSeriesStyles; ++i) {
    css +=
        format_text(".line.series{0}{{stroke:var(--s{0});stroke-dasharray:{1}}}.mark.series{0}{{fill:var(--s{0})}}",
                    i, kDashes[i]);
  }
  css +=
      ".chart{display:block;width:100%;max-width:520px;height:auto}.heat{display:block;max-width:none}"
      ".chart text,.heat text{font:12px var(--font);fill:var(--soft);font-variant-numeric:tabular-nums}"
      ".chart text{font-size:13px}.chart "
      ".axis-label{fill:var(--ink)}.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}"
      ".line{fill:none;stroke-width:2.2;stroke-linejoin:round}.line.faint{stroke-width:1;opacity:.45;stroke-"
      "dasharray:none}"
      ".mark{stroke:var(--card);stroke-width:1}.zero{stroke:var(--ink);stroke-width:1.4;stroke-dasharray:5 3}"
      ".seed{fill:none;stroke:var(--s0);stroke-width:1.8}.mean{fill:var(--s1)}.interval{fill:none;stroke:var(--s1);"
      "stroke-width:2.2}";
  css += heat_rules(false);
  // Print keeps the light colours, whatever the screen has.
  return css + "@media screen and (prefers-color-scheme:dark){" + series_rules(true) + heat_rules(true) + "}";
}

}  // namespace depthroute
