"""`depthroute prepare` on text files, as a whole command, against SentencePiece and Hugging Face's tokenizers on the same text in the same run.

  python bench/peers/encode.py PARQUET.. --tokenizer DATA/tokenizer.model [--threads 2] [--rounds 3] [--megabytes 60] [--json]

prepare reads, splits, encodes and writes; the others only encode texts that are in memory, with one thread. "SentencePiece" is the library's own
encoder with the same model. "tokenizers, same model" is that model in Hugging Face's LlamaTokenizer. "tokenizers, byte-level" is a BPE of the same
size in GPT-2's manner, learned on the same text: the fastest kind that Hugging Face's library has.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "true"

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import sentencepiece  # noqa: E402
import tokenizers  # noqa: E402
import transformers  # noqa: E402
from timing import interleave, summary  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read_texts(files, size):
    texts, done = [], 0
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(columns=["text"]):
            for text in batch.column("text").to_pylist():
                if text and len(text) < 1_000_000:  # one huge document would decide the peers' times
                    texts.append(text)
                    done += len(text.encode())
            if done >= size:
                return texts, done
    return texts, done


def byte_level(texts, vocabulary):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts[:4000], trainer)
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    texts, size = read_texts(options.files, options.megabytes * 1e6)
    model = sentencepiece.SentencePieceProcessor(model_file=options.tokenizer)
    with tempfile.TemporaryDirectory(dir=ROOT) as work:
        work = pathlib.Path(work)
        pq.write_table(pa.table({"text": texts}), work / "text.parquet", row_group_size=1000, compression="zstd")

        def prepare(threads):
            shutil.rmtree(work / "data", ignore_errors=True)
            subprocess.run([ROOT / "build/depthroute", "prepare", work / "text.parquet", "--out", work / "data", "--tokenizer", options.tokenizer,
                            "--threads", str(threads)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        prepare(1)
        llama = transformers.LlamaTokenizer.from_pretrained(work / "data").backend_tokenizer
        gpt = byte_level(texts, model.get_piece_size())
        # The peers take a share of the text, so that a round is short.
        few = texts[:max(1, len(texts) // 10)]
        share = sum(len(text.encode()) for text in few) / size
        candidates = {"prepare, one thread": lambda: prepare(1), f"prepare, {options.threads} threads": lambda: prepare(options.threads),
                      "SentencePiece": lambda: model.encode(few, num_threads=1),
                      "tokenizers, same model": lambda: llama.encode_batch(few, add_special_tokens=False),
                      "tokenizers, byte-level": lambda: gpt.encode_batch(few)}
        seconds = interleave(candidates, options.rounds)
        for name in list(seconds)[2:]:
            seconds[name] = [value / share for value in seconds[name]]
    rows = summary(seconds, "prepare, one thread")
    raw = seconds["SentencePiece"]
    goal = sorted(s / options.threads / p for s, p in zip(raw, list(seconds.values())[1]))[options.rounds // 2]
    result = {"bytes": size, "threads": options.threads, "results": rows, "share_of_limit": goal,
              "versions": {m.__name__: m.__version__ for m in (sentencepiece, tokenizers, transformers)}}
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for row in rows:
        print(f"{row['name']:26} {size / row['median'] / 1e6:8.2f} MB/s   {row['over_ours']:6.2f} times the time of prepare with one thread")
    print(f"prepare with {options.threads} threads over {options.threads} times SentencePiece's own speed: {goal:.2f}")


if __name__ == "__main__":
    main()
