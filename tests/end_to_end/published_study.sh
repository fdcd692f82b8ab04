#!/usr/bin/env bash
# The study in docs/results/gcide can be run again by anyone: the same data from the same package, the same protocol hash, and the same
# losses for the first steps of two of its runs, bit for bit on a processor like the one it ran on. Its report follows from its files.
published=$(realpath "$(dirname "$0")/../../docs/results/gcide")
config=$(realpath "$(dirname "$0")/../../configs/study/gcide.toml")
source "$(dirname "$0")/common.bash"
text=/usr/share/dictd/gcide.dict.dz
[ -e $text ] || { echo "no $text (Debian's dict-gcide): skipped"; exit 77; }
steps=60

# As the head of the study's file says.
"$program" prepare $text --format gcide --out data/gcide --vocabulary-size 2048 --split 0.99,0.005,0.005 >out 2>err || fail "prepare: $(tail -n 1 err)"

value() { sed -nE "s/.*\"$2\": ?\"?([^\",}]*)\"?.*/\1/p" "$1" | head -n 1; }
# STEP LOSS GRADIENT_NORM of the first steps.
beginning() {
  sed -nE 's/^\{"event":"train","step":([0-9]+),.*"loss":([^,]*),.*"gradient_norm":([^,]*),.*/\1 \2 \3/p' "$1" | awk -v last=$steps '$1 <= last'
}
flags() { grep -m 1 '^flags' /proc/cpuinfo; grep -m 1 '^model name' /proc/cpuinfo; }

for run in standard-seed1:0 rd_attnres-seed1:2; do
  name=${run%:*} metrics=again/runs/${run%:*}/metrics.jsonl
  "$program" study "$config" --out again --run "${run#*:}" >out 2>err &
  pid=$!
  while kill -0 $pid 2>/dev/null && ! grep -q "\"step\":$steps," "$metrics" 2>/dev/null; do sleep 0.1; done
  kill -TERM $pid 2>/dev/null
  wait $pid
  [ "$(beginning "$metrics" | wc -l)" = $((steps / 10)) ] || { fail "$name did not get to step $steps: $(tail -n 1 err)"; continue; }
  for key in study_hash config_hash data_hash; do
    [ "$(value again/runs/$name/run.json $key)" = "$(value "$published/runs/$name/run.json" $key)" ] || fail "$name: another $key than published"
  done
  if [ "$(beginning "$metrics")" = "$(beginning "$published/runs/$name/metrics.jsonl")" ]; then
    echo "$name: the same bits over $steps steps"
  elif cmp -s <(flags) "$published/processor" && [ "$(value again/runs/$name/run.json torch_version)" = "$(value "$published/runs/$name/run.json" torch_version)" ]; then
    fail "$name: other bits on the same processor: $(diff <(beginning "$metrics") <(beginning "$published/runs/$name/metrics.jsonl") | head -n 2)"
  else
    # Rounding differs between instruction sets, and grows with every step.
    paste <(beginning "$metrics") <(beginning "$published/runs/$name/metrics.jsonl") |
      awk '$1 != $4 || ($2 - $5) ^ 2 > 1e-6 { exit 1 }' || fail "$name: other losses, beyond rounding, on another processor"
    echo "$name: the same losses within 0.001 over $steps steps, on another processor"
  fi
done

# The published numbers are what this program says of the published runs.
cp -r "$published" copy
"$program" report copy --throughput copy/speed.json --format csv >csv 2>err || fail "report of the published runs: $(tail -n 1 err)"
cmp -s csv "$published/report.csv" || fail "docs/results/gcide/report.csv is not the report of its runs; docs/results/README.md says how it is made: $(diff csv "$published/report.csv" | head -n 2)"
finish
