#!/usr/bin/env bash
# Builds the fuzzers (clang with libFuzzer, Debian: clang) and runs each for SECONDS (default 600), two side by side, from small real files.
# What a fuzzer finds it leaves in build-fuzz/, and the exit code is not 0.
#   tests/fuzz/run.sh [SECONDS [READER...]]
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-600}
readers=("${@:2}")
[ ${#readers[@]} -gt 0 ] || readers=(shard manifest jsonl text safetensors)
cmake --preset fuzz > /dev/null
cmake --build --preset fuzz
cd build-fuzz
seeds() { mkdir -p "corpus/$1" && cp "${@:2}" "corpus/$1/"; }
mkdir -p made
for i in {1..300}; do printf 'Document %d, \xc3\xa9\xe6\x97\xa5.\n\n' "$i"; done > made/a.txt
head -n 10 made/a.txt | sed -n 's/^\(Document.*\)$/{"text": "\1\\n\\u00e9\\ud83d\\ude00", "id": "a", "x": [1, null, {"y": 1e5}]}/p' > made/a.jsonl
head -n 4 made/a.txt | tee made/short.txt | gzip > made/short.txt.gz
head -n 2 made/a.jsonl | gzip > made/a.jsonl.gz
../build/depthroute prepare made/a.txt --out made/data --vocabulary-size 290 --split 0.8,0.1,0.1 > made/prepare.log 2>&1 || { cat made/prepare.log; exit 1; }
seeds shard made/data/val-00000.bin
seeds manifest made/data/manifest.json
seeds jsonl made/a.jsonl made/a.jsonl.gz
seeds text made/short.txt made/short.txt.gz
seeds safetensors "$(ls -S ../tests/golden/*.safetensors | tail -n 1)"
printf '%s\n' "${readers[@]}" |
  xargs -P 2 -I{} sh -c "tests/fuzz/fuzz_{} corpus/{} -max_total_time=$seconds -max_len=20000 -rss_limit_mb=3000 -timeout=20 -print_final_stats=1 \
    > fuzz_{}.log 2>&1 && echo \"{}: \$(grep -a 'number_of_executed_units' fuzz_{}.log | tail -n 1), nothing found\""
