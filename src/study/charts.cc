#include "study/charts.h"

#include <algorithm>
#include <cmath>

#include "io/format.h"
#include "io/progress.h"

namespace depthroute {
namespace {

// One chart fits a phone at nearly its own size and half a desktop page slightly enlarged.
constexpr double kWidth = 420, kHeight = 310, kLeft = 66, kRight = 14, kTop = 14, kBottom = 48;

struct Range {
  double low = 0, high = 1;
};

// A range that can be divided by, whatever came in.
Range padded(double low, double high, double share) {
  if (!(low <= high)) return {0, 1};
  const double span = high - low;
  const double pad = span > 0 ? span * share : std::max(std::abs(low) * 0.05, 1e-3);
  return {low - pad, high + pad};
}

struct Plot {
  Range x, y;
  double left = kLeft;  // where the plot begins: right of the numbers of its y axis
  double px(double value) const { return left + (value - x.low) / (x.high - x.low) * (kWidth - left - kRight); }
  double py(double value) const {
    return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  }
};

bool finite(const ChartPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

int decimals_for(const std::vector<double>& ticks) {
  if (ticks.size() < 2) return 3;
  return std::clamp(static_cast<int>(std::ceil(-std::log10(ticks[1] - ticks[0]) - 1e-9)), 0, 6);
}

std::string tick_text(double value, int decimals) {
  if (std::abs(value) >= 1e4) {
    std::string text = format_count(std::abs(value));
    // 2.00 M -> 2 M, 2.50 M -> 2.5 M
    const size_t unit = text.find(' ');
    if (unit != std::string::npos && text.find('.') < unit) {
      size_t end = unit;
      while (text[end - 1] == '0') --end;
      if (text[end - 1] == '.') --end;
      text.erase(end, unit - end);
    }
    return (value < 0 ? "−" : "") + text;
  }
  const bool zero = std::abs(value) < std::pow(10, -decimals) / 2;
  return (value < 0 && !zero ? "−" : "") + format_text("{:.{}f}", std::abs(value), decimals);
}

struct Tick {
  double value = 0;
  std::string label;
};

std::vector<Tick> y_ticks(const Range& y) {
  const std::vector<double> values = round_ticks(y.low, y.high, 5);
  const int decimals = decimals_for(values);
  std::vector<Tick> ticks;
  for (double value : values) ticks.push_back({value, tick_text(value, decimals)});
  return ticks;
}

// Differences in the fourth decimal have long numbers, which would run into the axis' name.
Plot make_plot(const Range& x, const Range& y) {
  constexpr double kAxisName = 30, kDigit = 7.2;
  Plot plot{x, y};
  for (const Tick& tick : y_ticks(y)) {
    const auto characters = std::ranges::count_if(tick.label, [](char c) { return (c & 0xc0) != 0x80; });
    plot.left = std::max(plot.left, kAxisName + kDigit * static_cast<double>(characters));
  }
  return plot;
}

std::string open_svg(const ChartText& text) {
  return format_text(
      "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{}-t {}-d\" "
      "xmlns=\"http://www.w3.org/2000/svg\"><title id=\"{}-t\">{}</title><desc id=\"{}-d\">{}</desc>",
      kWidth, kHeight, text.id, text.id, text.id, escape_html(text.title), text.id, escape_html(text.description));
}

std::string label_axes(const ChartText& text, const Plot& plot) {
  const double middle = (kTop + kHeight - kBottom) / 2;
  return format_text(
      "<text class=\"axis-label\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>"
      "<text class=\"axis-label\" x=\"14\" y=\"{:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 14 "
      "{:.1f})\">{}</text>",
      (plot.left + kWidth - kRight) / 2, kHeight - 6, escape_html(text.x_label), middle, middle,
      escape_html(text.y_label));
}

std::string y_axis(const Plot& plot) {
  std::string svg;
  for (const Tick& tick : y_ticks(plot.y)) {
    svg += format_text(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>",
        plot.left, kWidth - kRight, plot.py(tick.value), plot.py(tick.value), plot.left - 7,
        plot.py(tick.value) + 4, tick.label);
  }
  return svg;
}

std::string x_axis(const Plot& plot, bool whole) {
  std::vector<double> ticks = round_ticks(plot.x.low, plot.x.high, 5);
  if (whole) std::erase_if(ticks, [](double tick) { return tick != std::round(tick); });
  const int decimals = whole ? 0 : decimals_for(ticks);
  std::string svg = format_text("<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>", plot.left,
                                kWidth - kRight, kHeight - kBottom, kHeight - kBottom);
  for (double tick : ticks) {
    svg += format_text(
        "<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>",
        plot.px(tick), kHeight - kBottom, kHeight - kBottom + 4, kHeight - kBottom + 18, tick_text(tick, decimals));
  }
  return svg;
}

std::string marker(int style, double x, double y) {
  const std::string common = format_text("class=\"mark series{}\"", style % kSeriesStyles);
  switch (style % 4) {
    case 0:
      return format_text("<circle {} cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.6\"/>", common, x, y);
    case 1:
      return format_text("<rect {} x=\"{:.1f}\" y=\"{:.1f}\" width=\"6.6\" height=\"6.6\"/>", common, x - 3.3,
                         y - 3.3);
    case 2:
      return format_text("<path {} d=\"M{:.1f} {:.1f}l4.2 7.4h-8.4z\"/>", common, x, y - 4.6);
    default:
      return format_text("<path {} d=\"M{:.1f} {:.1f}l4.6 4.6l-4.6 4.6l-4.6 -4.6z\"/>", common, x, y - 4.6);
  }
}

std::string polyline(const ChartLine& line, const Plot& plot) {
  std::string path;
  bool pen_down = false;
  for (const ChartPoint& point : line.points) {
    if (finite(point))
      path += format_text("{}{:.1f} {:.1f}", pen_down ? "L" : "M", plot.px(point.x), plot.py(point.y));
    pen_down = finite(point);
  }
  if (path.empty()) return {};
  return format_text("<path class=\"line series{}{}\" d=\"{}\"/>", line.style % kSeriesStyles,
                     line.faint ? " faint" : "", path);
}

Plot plot_of(const LineChart& chart) {
  double left = INFINITY, right = -INFINITY, low = INFINITY, high = -INFINITY;
  for (const ChartLine& line : chart.lines) {
    for (const ChartPoint& point : line.points) {
      if (finite(point)) left = std::min(left, point.x), right = std::max(right, point.x);
    }
  }
  const double from = left + (right - left) * chart.y_from_share;
  for (const ChartLine& line : chart.lines) {
    for (const ChartPoint& point : line.points) {
      if (finite(point) && point.x >= from) low = std::min(low, point.y), high = std::max(high, point.y);
    }
  }
  return make_plot(padded(left, right, 0.02), padded(low, high, 0.06));
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
          out += "\xef\xbf\xbd";
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::vector<double> round_ticks(double low, double high, int count) {
  const double span = high - low;
  if (!(span > 0) || !std::isfinite(span) || count < 1) return {};
  const double raw = span / count, power = std::pow(10, std::floor(std::log10(raw)));
  const double multiple = raw / power;
  const double step = power * (multiple <= 1.5 ? 1 : multiple <= 3 ? 2 : multiple <= 7 ? 5 : 10);
  std::vector<double> ticks;
  // Counted, not added up: sums of a step such as 0.1 drift, and never end where the step is below the values'
  // resolution.
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= 2 * count && (first + i) * step <= high + 1e-9 * step; ++i)
    ticks.push_back((first + i) * step);
  return ticks;
}

std::string line_chart(const LineChart& chart) {
  const Plot plot = plot_of(chart);
  std::string svg = open_svg(chart.text);
  svg += format_text("<clipPath id=\"{}-c\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>",
                     chart.text.id, plot.left, kTop - 4, kWidth - plot.left - kRight + 5,
                     kHeight - kTop - kBottom + 4);
  svg += y_axis(plot) + x_axis(plot, chart.whole_x) + label_axes(chart.text, plot);
  svg += format_text("<g clip-path=\"url(#{}-c)\">", chart.text.id);
  // Single seeds lie behind, means and markers in front.
  for (bool faint : {true, false}) {
    for (const ChartLine& line : chart.lines) {
      if (line.faint == faint) svg += polyline(line, plot);
    }
  }
  for (const ChartLine& line : chart.lines) {
    for (const ChartPoint& point : line.points) {
      if (point.marked && !line.faint && finite(point))
        svg += marker(line.style, plot.px(point.x), plot.py(point.y));
    }
  }
  return svg + "</g></svg>";
}

namespace {

Plot plot_of(const DifferenceChart& chart) {
  double low = 0, high = 0;
  for (const DifferenceGroup& group : chart.groups) {
    for (double value : group.values) {
      if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
    }
  }
  // With two pairs the t interval is 13 times as wide as the pairs; drawn whole it would hide them.
  const double span = high - low;
  const double least = low - span, most = high + span;
  for (const DifferenceGroup& group : chart.groups) {
    if (group.low && std::isfinite(*group.low)) low = std::min(low, std::max(*group.low, least));
    if (group.high && std::isfinite(*group.high)) high = std::max(high, std::min(*group.high, most));
  }
  return make_plot({0, static_cast<double>(std::max<size_t>(chart.groups.size(), 1))}, padded(low, high, 0.08));
}

std::string interval_mark(const DifferenceGroup& group, const Plot& plot, double x) {
  if (!group.mean || !std::isfinite(*group.mean)) return {};
  std::string svg;
  if (group.low && group.high && std::isfinite(*group.low) && std::isfinite(*group.high)) {
    const double bottom = plot.py(std::max(*group.low, plot.y.low)),
                 top = plot.py(std::min(*group.high, plot.y.high));
    svg += format_text("<path class=\"interval\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", x, bottom, top);
    const auto end = [&](bool cut, double y, double outward) {
      return cut ? format_text("<path class=\"interval\" d=\"M{:.1f} {:.1f}l5 {:.1f}l5 {:.1f}\"/>", x - 5,
                               y - 6 * outward, 6 * outward, -6 * outward)
                 : format_text("<path class=\"interval\" d=\"M{:.1f} {:.1f}h10\"/>", x - 5, y);
    };
    svg += end(*group.low < plot.y.low, bottom, 1) + end(*group.high > plot.y.high, top, -1);
  }
  return svg +
         format_text("<path class=\"mean\" d=\"M{:.1f} {:.1f}l6 6l-6 6l-6 -6z\"/>", x, plot.py(*group.mean) - 6);
}

}  // namespace

std::string difference_chart(const DifferenceChart& chart) {
  const Plot plot = plot_of(chart);
  std::string svg = open_svg(chart.text) + y_axis(plot) + label_axes(chart.text, plot);
  svg += format_text("<line class=\"zero\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", plot.left,
                     kWidth - kRight, plot.py(0), plot.py(0));
  // Beyond about eight milestones the labels would run into each other: every second, third, ... one is written.
  const size_t stride = (chart.groups.size() + 6) / 7;
  const double slot = plot.px(1) - plot.px(0);
  for (size_t i = 0; i < chart.groups.size(); ++i) {
    const DifferenceGroup& group = chart.groups[i];
    const double middle = plot.px(static_cast<double>(i) + 0.5), offset = std::min(14.0, slot / 5);
    for (double value : group.values) {
      if (!std::isfinite(value)) continue;
      svg += format_text("<circle class=\"seed\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>", middle - offset,
                         plot.py(value));
    }
    svg += interval_mark(group, plot, middle + offset);
    if (i % stride == 0) {
      svg += format_text("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", middle,
                         kHeight - kBottom + 18, escape_html(group.label));
    }
  }
  return svg + "</svg>";
}

std::string chart_legend(const std::vector<std::pair<std::string, int>>& series) {
  std::string html = "<ul class=\"legend\">";
  for (const auto& [name, style] : series) {
    html += format_text(
        "<li><svg viewBox=\"0 0 40 14\" width=\"40\" height=\"14\" aria-hidden=\"true\"><path class=\"line "
        "series{}\" "
        "d=\"M1 7H39\"/>{}</svg>{}</li>",
        style % kSeriesStyles, marker(style, 20, 7), escape_html(name));
  }
  return html + "</ul>";
}

}  // namespace depthroute
