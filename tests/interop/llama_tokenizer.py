#!/usr/bin/env python3
"""The tokens of prepared data against Hugging Face's LlamaTokenizer with the same model, on text that tokenizers get wrong.

  .venv-interop/bin/python tests/interop/llama_tokenizer.py [--program build/depthroute] [--documents 3000] [--seed 1]

Prepares jsonl of dictionary text and hostile Unicode, reads the shards and the manifest with numpy, and compares every document's ids with
LlamaTokenizer's, and the text that LlamaTokenizer decodes with the document. U+2581, by which SentencePiece writes a space, is not in the
documents: LlamaTokenizer cannot tell the two apart, and depthroute can.
"""
import argparse
import gzip
import json
import pathlib
import random
import subprocess
import tempfile

import numpy as np
import transformers
from transformers import AutoTokenizer, LlamaTokenizer

GCIDE = "/usr/share/dictd/gcide.dict.dz"
HOSTILE = ["a", " ", "  ", "   leading", "trailing   ", "\n\n\n", "\t tab\ttab \t", "line\r\nends\r", "NUL\x00NUL", "\x01\x02\x7f\x80\x9f", "nbsp\u00a0thin\u2009",
           "zero\u200bwidth\u200d\ufeff", "e\u0301 é ﬁ ﬃ ａ ℌ ½ Ω Ω", "👩‍👩‍👧‍👦🏳️‍🌈👍🏽", "\U00010348\U0010fffd\ufffd\uffff", "عربي من اليمين إلى اليسار", "עברית", "日本語の文章。中文句子。한국어",
           "ไทยไม่มีช่องว่าง", "x" * 3000, " " * 700, "ab " * 500, "<s>", "</s>", "<unk>", "<0x41>", "a</s>b <s> c", "1234567890 3.14159 1e-9", "__init__ -> {}[]();",
           "A\u0300\u0301\u0302\u0303\u0304", "ǅ ß ŉ İ ı", "\u2028\u2029\u0085", "tail of spaces \u3000\u3000"]


def documents(count, random_numbers):
    with gzip.open(GCIDE, "rt", encoding="utf-8", errors="replace") as file:
        text = file.read(20_000_000)
    entries = [part.replace("\u2581", "_") for part in text.split("\n\n") if part.strip()]
    yield from HOSTILE
    for i in range(count):
        kind = i % 3
        if kind == 0:
            yield random_numbers.choice(entries)
        elif kind == 1:
            yield "".join(random_numbers.choice(HOSTILE[:33] + entries[:50]) for _ in range(random_numbers.randint(1, 6)))
        else:  # any characters
            points = (random_numbers.choice([0x80, 0x800, 0x10000, 0x110000]) for _ in range(random_numbers.randint(1, 60)))
            yield "".join(chr(c) for c in (random_numbers.randrange(top) for top in points) if not 0xD800 <= c < 0xE000 and c != 0x2581)


def shard_documents(folder, manifest):
    """(id, tokens without the separator) of every document."""
    separator = manifest["tokenizer"]["separator"]
    for split in manifest["splits"].values():
        shards = [np.fromfile(folder / shard["file"], np.uint16, offset=1024) for shard in split["shards"]]
        tokens = np.concatenate(shards) if shards else np.zeros(0, np.uint16)
        ends = np.flatnonzero(tokens == separator)
        with open(folder / split["ids"]["file"]) as file:
            ids = [json.loads(line) for line in file]
        assert len(ids) == len(ends) == split["documents"], (len(ids), len(ends), split["documents"])
        begin = 0
        for name, end in zip(ids, ends):
            yield name, tokens[begin:end].tolist()
            begin = end + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/depthroute")
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    texts = [text for text in documents(options.documents, random.Random(options.seed)) if text]
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        with open(work / "documents.jsonl", "w", encoding="utf-8") as file:
            for i, text in enumerate(texts):
                file.write(json.dumps({"text": text, "id": str(i)}, ensure_ascii=i % 2 == 0) + "\n")
        # A tokenizer learned on the dictionary: characters that it has never seen are what byte fallback is for.
        prepare = [options.program, "prepare", "--split", "0.9,0.05,0.05", "--threads", "2"]
        subprocess.run([*prepare, GCIDE, "--format", "gcide", "--out", str(work / "dictionary"), "--vocabulary-size", "4000"], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([*prepare, str(work / "documents.jsonl"), "--out", str(work / "data"), "--id-column", "id", "--tokenizer",
                        str(work / "dictionary/tokenizer.model")], check=True, stdout=subprocess.DEVNULL)
        manifest = json.loads((work / "data/manifest.json").read_text())
        tokenizer = LlamaTokenizer.from_pretrained(work / "data")
        seen = differ = changed = 0
        for name, ids in shard_documents(work / "data", manifest):
            text = texts[int(name)]
            theirs = tokenizer.encode(text, add_special_tokens=False)
            seen += 1
            if ids != theirs:
                differ += 1
                print(f"differs: {text[:60]!r}: {ids[:20]} against {theirs[:20]}")
            if tokenizer.decode(ids, clean_up_tokenization_spaces=False) != text:
                changed += 1
                print(f"decoded to other text: {text[:60]!r}")
        print(f"transformers {transformers.__version__}, {type(AutoTokenizer.from_pretrained(work / 'data')).__name__} by AutoTokenizer")
    print(f"{seen} documents, {differ} with other ids, {changed} decoded to other text")
    if seen != len(texts) or differ or changed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
