#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "io/file.h"
#include "io/processes.h"
#include "io/signals.h"
#include "study/calibration.h"
#include "study/report.h"
#include "study/study_runner.h"
#include "study/throughput.h"

namespace depthroute {
namespace {

struct StudyArguments {
  std::string config, out;
  std::vector<std::string> set;
  int64_t run = -1, jobs = 1;
  bool list = false, aa = false;
  std::string variant, extend;
};

// A study folder, and beside it an A/A study and a measurement of its variants' speed where they are given.
struct ReportSources {
  std::string folder, aa{}, throughput{};
};

StudyResults read_results(const ReportSources& sources) {
  evaluate_test_split(sources.folder);
  StudyResults results = read_study(sources.folder);
  if (!sources.aa.empty()) results.calibration = read_calibration(sources.aa, results);
  if (!sources.throughput.empty()) apply_throughput(read_throughput(sources.throughput, results), results);
  return results;
}

// The report of a study folder, and where it is.
void write_report(const ReportSources& sources) {
  StudyResults results = read_results(sources);
  std::string path = (std::filesystem::path(sources.folder) / "report.html").string();
  write_file(path, render_report(results));
  std::printf("%s\nreport: %s\n", verdict_text(results).c_str(), path.c_str());
}

void run(const StudyArguments& options) {
  Config file = Config::read(options.config, options.set);
  StudyConfig study = read_study_config(file);
  if (options.aa) study = calibration_study(study, options.variant);
  if (options.list) {
    for (const StudyRun& item : study.runs)
      std::printf("%3ld  %s\n", static_cast<long>(item.index), item.name().c_str());
    return;
  }
  catch_stop_signals();
  StudyOptions runs{.jobs = options.jobs,
                    .command = {own_program(), "study", options.config, "--out", options.out}};
  for (const std::string& item : options.set) runs.command.insert(runs.command.end(), {"--set", item});
  if (options.aa) runs.command.emplace_back("--aa");
  if (!options.variant.empty()) runs.command.insert(runs.command.end(), {"--variant", options.variant});
  if (options.run >= 0) runs.only = options.run;
  runs.extend = options.extend;
  StudyOutcome outcome = run_study(study, options.out, runs);
  if (outcome.stopped) {
    std::printf("stopped and saved; the same command continues\n");
    throw StoppedBySignal{stop_signal()};
  }
  if (outcome.trained == 0 && outcome.failed == 0)
    std::printf("all %zu runs are done; nothing to train\n", study.runs.size());
  if (!runs.only) write_report({options.out});
  if (outcome.failed > 0)
    fail_run("{} of {} runs failed; the report names them", outcome.failed, study.runs.size());
}

}  // namespace

void add_study_command(CLI::App& app) {
  auto options = std::make_shared<StudyArguments>();
  CLI::App* command =
      app.add_subcommand("study", "The paired protocol: every variant on every seed; continues where it stopped");
  command->add_option("config", options->config, "The study's TOML file")->required();
  command->add_option("--out", options->out, "The study's folder")->required();
  command->add_option("--set", options->set, "key=value over the config, before the study starts; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--run", options->run, "Only the run of this index, without a report (for job arrays)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--jobs", options->jobs, "Runs side by side, each a process with the config's threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  CLI::Option* aa = command->add_flag(
      "--aa", options->aa, "Instead an A/A study: one variant twice a seed, to learn what chance alone does");
  command->add_option("--variant", options->variant, "Of --aa (default: the first comparison's baseline)")
      ->needs(aa);
  command->add_option("--extend", options->extend,
                      "A study's folder: take over its runs as they are, and go on to this study's longer horizon");
  command->add_flag("--list", options->list, "List the runs and their indices, and do nothing");
  command->footer("Example: depthroute study configs/study/quickstart.toml --out runs/quickstart");
  command->callback([options] { run(*options); });
}

void add_report_command(CLI::App& app) {
  struct ReportOptions {
    ReportSources sources;
    std::string out, format = "html";
  };
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand("report", "The report of a study folder: HTML, Markdown, JSON or CSV");
  command->add_option("study", options->sources.folder, "The study's folder")->required();
  command->add_option("--format", options->format, "html, md, json or csv")
      ->check(CLI::IsMember({"html", "md", "json", "csv"}))
      ->capture_default_str();
  command->add_option(
      "--out", options->out,
      "The file to write (default: report.html in the study's folder; the others go to standard output)");
  command->add_option("--aa", options->sources.aa,
                      "The folder of an A/A study, whose spread stands beside each effect");
  command->add_option("--throughput", options->sources.throughput,
                      "What bench step --study --json measured: training time from it instead of from the runs");
  command->footer("Example: depthroute report runs/quickstart --format csv --out quickstart.csv");
  command->callback([options] {
    if (options->format == "html" && options->out.empty()) return write_report(options->sources);
    StudyResults results = read_results(options->sources);
    std::string text = options->format == "html"   ? render_report(results)
                       : options->format == "md"   ? report_markdown(results)
                       : options->format == "json" ? dump_json(report_json(results), 2) + "\n"
                                                   : report_csv(results);
    if (options->out.empty()) {
      std::fputs(text.c_str(), stdout);
    } else {
      write_file(options->out, text);
    }
  });
}

}  // namespace depthroute
