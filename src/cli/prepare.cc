#include "cli/prepare.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "data/data_stats.h"
#include "data/prepare.h"
#include "io/format.h"

namespace depthroute {
namespace {

// The options as they are typed.
struct PrepareArguments {
  PrepareOptions options;
  std::string format = "auto", unit = "paragraph", fractions = "0.98,0.01,0.01";
  int64_t deduplicate_mebibytes = 512;
};

void print_summary(const PrepareOptions& options, const PrepareResult& result) {
  const std::string folder = options.output.string();
  if (result.already_done)
    std::fputs(format_text("{} is there already, made from the same inputs and options\n", folder).c_str(), stdout);
  std::fputs(format_text("{}\n{}: vocabulary {}, tokenizer {}\n", split_table(result.manifest), folder,
                         result.manifest.vocabulary_size, result.manifest.tokenizer_hash)
                 .c_str(),
             stdout);
}

void run(PrepareArguments& arguments) {
  PrepareOptions& options = arguments.options;
  options.documents.format = document_format(arguments.format);
  options.documents.unit = document_unit(arguments.unit);
  options.split.fractions = parse_fractions(arguments.fractions);
  options.deduplicate_bytes = arguments.deduplicate_mebibytes << 20;
  print_summary(options, prepare(options));
}

}  // namespace

void add_prepare_command(CLI::App& app) {
  auto arguments = std::make_shared<PrepareArguments>();
  PrepareOptions& options = arguments->options;
  CLI::App* command =
      app.add_subcommand("prepare", "Turn documents into a tokenizer, token shards and a train/val/test split");
  command->option_defaults()->always_capture_default();  // --help shows the defaults
  command
      ->add_option("inputs", options.inputs,
                   "Files and folders of documents; each may be compressed with gzip or zstd")
      ->required();
  command->add_option("--out", options.output, "The folder to make")->required();
  command->add_option("--format", arguments->format, "auto, text, jsonl, parquet or gcide");
  command->add_option("--document", arguments->unit, "What a document of plain text is: paragraph or file");
  command->add_option("--text-column", options.documents.text_column,
                      "The key of a jsonl line, or the column of a parquet file, that holds the text");
  command->add_option("--id-column", options.documents.id_column,
                      "Likewise of the documents' identifiers, which are kept beside the shards");
  command->add_option("--vocabulary-size", options.vocabulary_size, "Pieces of the tokenizer that is trained");
  command->add_option("--tokenizer", options.tokenizer, "Use this SentencePiece model instead of training one");
  command->add_option("--split", arguments->fractions, "Fractions of train, val and test");
  command->add_option("--seed", options.split.seed, "Of the split");
  command->add_option("--sample-bytes", options.sample_bytes,
                      "Text to train the tokenizer on (0: by the vocabulary)");
  command->add_option("--threads", options.threads, "Threads that encode; they do not change the result");
  command->add_flag("--dedup", options.deduplicate, "Leave out all but the first of documents with the same text");
  command
      ->add_option("--dedup-memory", arguments->deduplicate_mebibytes,
                   "MiB for the table of documents seen: 16 bytes each, and a third more")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--save-interval", options.save_interval,
                      "Seconds between the states from which the same command continues after it was stopped");
  command->add_flag("--overwrite", options.overwrite, "Replace a folder that prepare made from something else");
  command->footer(
      "Example:\n"
      "  depthroute prepare /usr/share/dictd/gcide.dict.dz --out data/gcide --vocabulary-size 4096 --threads 2");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace depthroute
