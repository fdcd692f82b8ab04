// What the depth reads do: heat maps of the mean shares, and the divergence of the query-key and value routes.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "io/format.h"
#include "study/charts.h"
#include "study/report_html.h"
#include "study/route_findings.h"

namespace depthroute {
namespace {

// The mean over the seeds of one variant's reads, at the latest tokens at which any of its runs was diagnosed.
struct RouteMeans {
  std::string variant;
  int64_t tokens = 0;
  size_t runs = 0;
  std::vector<DepthReadSummary> reads{};
  std::vector<LayerDivergence> divergence{};
  double mean_per_token = kNotANumber, mean_of_means = kNotANumber;
};

std::vector<const Diagnostics*> latest_diagnostics(const StudyResults& results, const std::string& variant) {
  std::vector<const Diagnostics*> found;
  int64_t latest = -1;
  for (const RunResult& run : results.runs) {
    if (run.variant == variant && run.usable() && !run.diagnostics.empty())
      latest = std::max(latest, run.diagnostics.back().tokens);
  }
  for (const RunResult& run : results.runs) {
    if (run.variant != variant || !run.usable()) continue;
    for (const Diagnostics& point : run.diagnostics) {
      if (point.tokens == latest) found.push_back(&point);
    }
  }
  return found;
}

const DepthReadSummary* same_read(const Diagnostics& diagnostics, const DepthReadSummary& read) {
  for (const DepthReadSummary& other : diagnostics.reads) {
    if (other.site == read.site && other.role == read.role && other.sources == read.sources) return &other;
  }
  return nullptr;
}

DepthReadSummary mean_read(const DepthReadSummary& read, const std::vector<const Diagnostics*>& all) {
  DepthReadSummary result = read;
  std::vector<double> entropy, largest;
  std::vector<std::vector<double>> shares(read.mean.size());
  for (const Diagnostics* diagnostics : all) {
    const DepthReadSummary* other = same_read(*diagnostics, read);
    if (!other) continue;
    entropy.push_back(other->entropy);
    largest.push_back(other->largest);
    for (size_t i = 0; i < shares.size(); ++i) shares[i].push_back(other->mean[i]);
  }
  for (size_t i = 0; i < shares.size(); ++i) result.mean[i] = mean(shares[i]);
  result.entropy = mean(entropy), result.largest = mean(largest);
  return result;
}

RouteMeans route_means(const StudyResults& results, const std::string& variant) {
  RouteMeans means{variant};
  const std::vector<const Diagnostics*> all = latest_diagnostics(results, variant);
  if (all.empty()) return means;
  means.tokens = all.front()->tokens, means.runs = all.size();
  for (const DepthReadSummary& read : all.front()->reads) means.reads.push_back(mean_read(read, all));
  for (const LayerDivergence& layer : all.front()->divergence) {
    std::vector<double> per_token, of_means;
    for (const Diagnostics* diagnostics : all) {
      for (const LayerDivergence& other : diagnostics->divergence) {
        if (other.layer == layer.layer) per_token.push_back(other.per_token), of_means.push_back(other.of_means);
      }
    }
    means.divergence.push_back({layer.layer, mean(per_token), mean(of_means)});
  }
  std::vector<double> per_token, of_means;
  for (const Diagnostics* diagnostics : all) {
    per_token.push_back(diagnostics->mean_per_token);
    of_means.push_back(diagnostics->mean_of_means);
  }
  means.mean_per_token = mean(per_token), means.mean_of_means = mean(of_means);
  return means;
}

std::string map_name(const DepthReadSummary& read) {
  return read.kind == read.role ? read.kind : format_text("{} · {}", read.kind, read.role);
}

// Sources in the order in which they come to be, the running sum last.
std::vector<std::string> source_columns(const std::vector<DepthReadSummary>& reads) {
  std::vector<std::string> columns;
  for (const DepthReadSummary& read : reads) {
    for (const std::string& source : read.sources) {
      if (std::ranges::find(columns, source) == columns.end()) columns.push_back(source);
    }
  }
  std::ranges::stable_partition(columns, [](const std::string& source) { return source != "partial"; });
  return columns;
}

std::vector<double> shares_by_column(const DepthReadSummary& read, const std::vector<std::string>& columns) {
  std::vector<double> shares(columns.size(), kNotANumber);
  for (size_t i = 0; i < read.sources.size(); ++i) {
    shares[std::ranges::find(columns, read.sources[i]) - columns.begin()] = read.mean[i];
  }
  return shares;
}

std::string heat_figure(const RouteMeans& means, const std::string& name, double largest, const std::string& id) {
  std::vector<DepthReadSummary> reads;
  std::ranges::copy_if(means.reads, std::back_inserter(reads),
                       [&](const DepthReadSummary& read) { return map_name(read) == name; });
  const std::vector<std::string> columns = source_columns(reads);
  HeatMap map{{id, format_text("{}: {}", means.variant, name),
               "Mean share of each source (columns) in each layer's read (rows)."},
              {},
              columns};
  map.largest = largest;
  for (const DepthReadSummary& read : reads) {
    map.rows.push_back(read.layer < 0 ? "output" : format_text("layer {}", read.layer));
    map.values.push_back(shares_by_column(read, columns));
  }
  return format_text(
      "<figure><figcaption>{}</figcaption><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"{}\">{}</div>"
      "</figure>\n",
      escape_html(name), escape_html(map.text.title), heat_map(map));
}

std::string read_table(const RouteMeans& means, const std::vector<std::string>& columns) {
  Table table{
      format_text("Depth reads of {}: entropy in nats, mean largest share of a token, mean share of each source",
                  means.variant),
      {"site", "role", "entropy", "largest"},
      {},
      2};
  table.header.insert(table.header.end(), columns.begin(), columns.end());
  for (const DepthReadSummary& read : means.reads) {
    std::vector<std::string> row = {read.site, read.role, fixed_number(read.entropy, 3),
                                    fixed_number(read.largest, 3)};
    for (double share : shares_by_column(read, columns))
      row.push_back(std::isfinite(share) ? fixed_number(share, 3) : "");
    table.rows.push_back(std::move(row));
  }
  return table_html(table);
}

std::string variant_maps(const RouteMeans& means, double largest, size_t number) {
  const std::vector<std::string> columns = source_columns(means.reads);
  std::vector<std::string> names;
  for (const DepthReadSummary& read : means.reads) {
    if (std::ranges::find(names, map_name(read)) == names.end()) names.push_back(map_name(read));
  }
  std::string html = format_text("<h3>{}</h3>\n", escape_html(means.variant));
  html += paragraph(format_text("After {} tokens, mean over {} run{}.", tokens_label(means.tokens), means.runs,
                                means.runs == 1 ? "" : "s"),
                    "soft");
  html += list_html(route_findings(means.reads, means.divergence));
  html += "<div class=\"maps\">";
  for (size_t i = 0; i < names.size(); ++i) {
    html += heat_figure(means, names[i], largest, format_text("heat-{}-{}", number, i));
  }
  return html + "</div>\n" + details_html("The numbers behind these maps", read_table(means, columns));
}

std::string heat_scale(double largest) {
  std::string svg = "<svg class=\"heat\" viewBox=\"0 0 168 12\" width=\"168\" height=\"12\" aria-hidden=\"true\">";
  for (int level = 0; level < kHeatLevels; ++level) {
    svg += format_text("<rect class=\"heat{}\" x=\"{}\" y=\"0\" width=\"8\" height=\"12\"/>", level, level * 8);
  }
  return format_text("<p class=\"scale\">0 {}</svg>{:.2f} (largest share where there is a choice)</p>\n", svg,
                     largest);
}

std::string layer_chart(const std::vector<RouteMeans>& all, std::vector<std::pair<std::string, int>>& series) {
  LineChart chart{{"divergence-layers", "Jensen-Shannon divergence by layer",
                   "Divergence of the query-key and value distributions.", "layer", "divergence, nats"}};
  chart.whole_x = true;
  for (const RouteMeans& means : all) {
    if (means.divergence.empty()) continue;
    ChartLine per_token{means.variant + ", per token", static_cast<int>(series.size())};
    ChartLine of_means{means.variant + ", of the mean distributions", static_cast<int>(series.size()) + 1};
    for (const LayerDivergence& layer : means.divergence) {
      per_token.points.push_back({static_cast<double>(layer.layer), layer.per_token, true});
      of_means.points.push_back({static_cast<double>(layer.layer), layer.of_means, true});
    }
    chart.text.description +=
        format_text(" {}: mean over the layers {} per token, {} of the mean distributions.", means.variant,
                    fixed_number(means.mean_per_token), fixed_number(means.mean_of_means));
    series.emplace_back(per_token.name, per_token.style);
    series.emplace_back(of_means.name, of_means.style);
    chart.lines.push_back(std::move(per_token));
    chart.lines.push_back(std::move(of_means));
  }
  return line_chart(chart);
}

// How the mean divergence moves over training: one thin line a run, in the style of its variant's "per token" line.
LineChart training_chart(const StudyResults& results, const std::vector<RouteMeans>& all) {
  LineChart chart{{"divergence-training", "Jensen-Shannon divergence over training",
                   "Mean over layers of the divergence per token, one line a run.", "tokens", "divergence, nats"}};
  int style = 0;
  for (const RouteMeans& means : all) {
    if (means.divergence.empty()) continue;
    for (const RunResult& run : results.runs) {
      if (run.variant != means.variant || !run.usable()) continue;
      ChartLine line{format_text("{}, seed {}", run.variant, run.seed), style};
      for (const Diagnostics& point : run.diagnostics) {
        line.points.push_back({static_cast<double>(point.tokens), point.mean_per_token, true});
      }
      chart.lines.push_back(std::move(line));
    }
    style += 2;
  }
  return chart;
}

std::string divergence_table(const std::vector<RouteMeans>& all) {
  Table table{"Divergence by layer, mean over the runs",
              {"variant", "layer", "per token", "of the mean distributions"},
              {},
              1};
  for (const RouteMeans& means : all) {
    for (const LayerDivergence& layer : means.divergence) {
      table.rows.push_back({means.variant, format_text("{}", layer.layer), fixed_number(layer.per_token),
                            fixed_number(layer.of_means)});
    }
  }
  return table_html(table);
}

std::string training_table(const LineChart& chart) {
  Table table{"Mean divergence per token over training", {"run", "tokens", "divergence"}};
  for (const ChartLine& line : chart.lines) {
    for (const ChartPoint& point : line.points) {
      table.rows.push_back({line.name, tokens_label(static_cast<int64_t>(point.x)), fixed_number(point.y)});
    }
  }
  return table_html(table);
}

std::vector<RouteMeans> all_means(const StudyResults& results) {
  std::vector<RouteMeans> all;
  for (const std::string& variant : results.protocol.variants) {
    RouteMeans means = route_means(results, variant);
    if (!means.reads.empty()) all.push_back(std::move(means));
  }
  return all;
}

}  // namespace

std::string route_section(const StudyResults& results) {
  const std::vector<RouteMeans> all = all_means(results);
  if (all.empty()) return {};
  double largest = 0;
  for (const RouteMeans& means : all) {
    for (const DepthReadSummary& read : means.reads) {
      // A read of a single source gives it everything; that says nothing and would pale all others.
      if (read.mean.size() < 2) continue;
      for (double share : read.mean) largest = std::isfinite(share) ? std::max(largest, share) : largest;
    }
  }
  std::string html = paragraph(
                         "Each row is one read, each column a source it can take from: emb the embedding, numbers "
                         "the completed blocks, part "
                         "the running sum of the current block. The shares of a row sum to one; an absent cell is "
                         "a source that did not exist yet.",
                         "soft") +
                     heat_scale(largest);
  for (size_t i = 0; i < all.size(); ++i) html += variant_maps(all[i], largest, i);
  return html;
}

std::string divergence_section(const StudyResults& results) {
  const std::vector<RouteMeans> all = all_means(results);
  if (std::ranges::all_of(all, [](const RouteMeans& means) { return means.divergence.empty(); })) return {};
  std::string html = paragraph(
      "How far the query-key and value routes have drifted apart: Jensen-Shannon divergence in nats (natural "
      "logarithm, at "
      "most 0.693). Computed for each token and then averaged, and of the averaged distributions too, which is "
      "never larger.",
      "soft");
  for (const RouteMeans& means : all) {
    if (means.divergence.empty()) continue;
    html += paragraph(format_text("{}, mean over the layers: {} per token, {} of the mean distributions.",
                                  means.variant, fixed_number(means.mean_per_token),
                                  fixed_number(means.mean_of_means)));
  }
  std::vector<std::pair<std::string, int>> series;
  const std::string layers = layer_chart(all, series);
  const LineChart training = training_chart(results, all);
  html += chart_legend(series) + "<div class=\"pair\">" + figure_html(layers, "By layer, mean over the runs.");
  html += figure_html(line_chart(training),
                      "Over training: mean over the layers of the divergence per token, one line a run.");
  return html + "</div>\n" +
         details_html("The numbers behind the divergence", divergence_table(all) + training_table(training));
}

}  // namespace depthroute
