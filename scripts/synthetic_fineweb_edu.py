#!/usr/bin/env python3
"""Parquet files like those of FineWeb-Edu's sample-10BT, to try `depthroute prepare` on at size without a download.

  .venv/bin/python scripts/synthetic_fineweb_edu.py OUT [--gigabytes 1] [--files 3] [--seed 1]

The columns and types are those of the real files, the text is out of the dictionary GCIDE (Debian's dict-gcide) in documents of FineWeb-Edu's
lengths. The files differ in compression (zstd, snappy, none in turn) and in how the text is stored (string, large_string, dictionary), have
several row groups, and hold what is rare in the real ones: nulls, empty texts, exact duplicates, emoji, text from right to left, NUL bytes, one
document of 20 MB. The same arguments make the same files.
"""
import argparse
import gzip
import pathlib
import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq

GCIDE = "/usr/share/dictd/gcide.dict.dz"
ROWS_OF_GROUP = 1000
ODD = ["", None, "a", " ", "\n\n", "Emoji: 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽.", "عربي من اليمين إلى اليسار، עברית מימין לשמאל.", "NUL \x00 within, tab\tand\r\nline ends.",
       "combining e\u0301 and ﬁ, ａ, \u2581 and \ufffd", "\U00010348\U0001F600" * 50, "x" * 5000, " " * 5000]
SCHEMA = [("text", None), ("id", pa.string()), ("dump", pa.string()), ("url", pa.string()), ("file_path", pa.string()), ("language", pa.string()),
          ("language_score", pa.float64()), ("token_count", pa.int64()), ("score", pa.float64()), ("int_score", pa.int64())]
KINDS = [("zstd", pa.string()), ("snappy", pa.large_string()), (None, pa.dictionary(pa.int32(), pa.string()))]


def paragraphs():
    with gzip.open(GCIDE, "rt", encoding="utf-8", errors="replace") as file:
        text = file.read()
    return [" ".join(part.split()) for part in text.split("\n\n") if len(part) > 40]


def documents(entries, size, random_numbers):
    """Texts of log-normal length (a mean of 4.8 kB, as in FineWeb-Edu) until `size` bytes are out."""
    done = 0
    while done < size:
        length = min(200_000, max(100, int(random_numbers.lognormvariate(8.0, 0.95))))
        parts = []
        while length > 0:
            parts.append(random_numbers.choice(entries))
            length -= len(parts[-1]) + 1
        text = "\n".join(parts)
        done += len(text.encode())
        yield text


def rows(texts, file):
    odd = iter(ODD)
    for i, text in enumerate(texts):
        if i % 97 == 50:
            text = next(odd, text)
        yield text
        if i % 5003 == 5000:
            yield text  # an exact duplicate
        if i == 1500 and file == 1:
            yield (text + " ") * (20_000_000 // (len(text) + 1))


def record(text, number, file, random_numbers):
    size = len(text or "")
    return {"text": text, "id": f"<urn:uuid:{random_numbers.getrandbits(128):032x}>" if number % 100 else None, "dump": "CC-MAIN-2024-10",
            "url": f"https://example.org/{file}/{number}", "file_path": f"s3://example/{file}.warc.gz", "language": "en",
            "language_score": round(random_numbers.uniform(0.65, 1), 4), "token_count": size // 4, "score": round(random_numbers.uniform(2.5, 5), 3),
            "int_score": random_numbers.randint(3, 5)}


def write_file(path, file, texts, random_numbers):
    compression, kind = KINDS[file % len(KINDS)]
    schema = pa.schema([(name, kind if of is None else of) for name, of in SCHEMA])
    with pq.ParquetWriter(path, schema, compression=compression) as writer:
        group = []

        def flush():
            if group:
                writer.write_table(pa.Table.from_pylist(group, schema=schema))
                group.clear()

        for number, text in enumerate(rows(texts, file)):
            group.append(record(text, number, file, random_numbers))
            if len(group) == ROWS_OF_GROUP:
                flush()
        flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of text, in all")
    parser.add_argument("--files", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    entries = paragraphs()
    for file in range(options.files):
        random_numbers = random.Random(f"{options.seed} {file}")
        path = options.out / f"{file:03d}_00000.parquet"
        write_file(path, file, documents(entries, options.gigabytes * 1e9 / options.files, random_numbers), random_numbers)
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
