#!/usr/bin/env bash
# A small study from its config to its report: in turn, as a job array, stopped and continued, with the same losses each time.
source "$(dirname "$0")/common.bash"
prepare_data
write_study
names="block_attnres-seed1 block_attnres-seed2 rd_attnres-seed1 rd_attnres-seed2 standard-seed1 standard-seed2"

study() { "$program" study study.toml --out "$@" >out 2>err || fail "study $*: $(tail -n 1 err)"; }
losses() {
  for name in $names; do
    echo "$name $(grep '"event":"validation"' "$1/runs/$name/metrics.jsonl" | sed -E 's/.*"loss":([^,}]*).*/\1/' | tr '\n' ' ')"
  done
}
contents() { find "$1" -type f ! -name lock -exec sha256sum {} + | sort; }
finished() { grep -l '"reason":"finished"' "$1"/runs/*/metrics.jsonl 2>/dev/null | wc -l; }
# A whole JSON value on standard output: by python3 where there is one.
is_json() {
  if python3 -c '' 2>/dev/null; then
    python3 -m json.tool < "$1" > /dev/null 2>&1
  else
    head -n 1 "$1" | grep -q '^{' && tail -n 1 "$1" | grep -q '^}$'
  fi
}
# json COMMAND...: standard output in the file json.
json() {
  "$program" "$@" >json 2>err || fail "$*: $(tail -n 1 err)"
  is_json json || fail "not one JSON object: $* ($(head -c 200 json))"
}
has() { grep -q "\"$1\"" json || fail "no '$1' in the JSON of $2"; }

# In turn.
"$program" study study.toml --out listed --list >out 2>err || fail "study --list"
[ "$(wc -l < out)" = 6 ] || fail "--list does not list six runs: $(cat out)"
[ -e listed ] && fail "--list made a folder"
study one
[ "$(finished one)" = 6 ] || fail "not six finished runs"
[ "$(ls one/runs | tr '\n' ' ')" = "$names " ] || fail "other run folders: $(ls one/runs)"
[ -s one/report.html ] || fail "no report"
for word in rd_attnres block_attnres standard end-to-end '</html>'; do grep -q "$word" one/report.html || fail "no $word in the report"; done
grep -Eq '(src|href)="(https?:)?//' one/report.html && fail "the report wants the network"
grep -Eq '\b(nan|NaN|inf)\b' one/report.html && fail "the report shows numbers that are none"
for name in $names; do [ -s "one/runs/$name/test.json" ] || fail "no test loss of $name"; done
[ "$(losses one | awk 'NF == 3' | wc -l)" = 6 ] || fail "not two validation losses a run: $(losses one)"
# Pairs see the same data and begin alike: two variants differ, two seeds differ.
[ "$(losses one | cut -d' ' -f2- | sort -u | wc -l)" = 6 ] || fail "two runs have the same losses: $(losses one)"

# A second time: nothing changes.
before=$(contents one)
study one
grep -q 'nothing to train' out || fail "a finished study trains again"
[ "$(contents one)" = "$before" ] || fail "a second call changes the study: $(diff <(echo "$before") <(contents one) | head -n 3)"

# As a job array: any order, two at a time, no report.
for pair in '5 2' '0 3' '1 4'; do
  pids=
  for index in $pair; do
    "$program" study study.toml --out array --run "$index" >"out$index" 2>"err$index" &
    pids+=" $!"
  done
  for pid in $pids; do wait "$pid" || fail "study --run ($pair): $(tail -qn 1 err[0-9])"; done
done
[ -e array/report.html ] && fail "--run wrote a report"
"$program" report array >out 2>err || fail "report of a job array: $(tail -n 1 err)"
[ -s array/report.html ] || fail "no report of a job array"
[ "$(losses one)" = "$(losses array)" ] || fail "a job array has other losses: $(diff <(losses one) <(losses array))"

# Side by side.
study aside --jobs 3
[ "$(losses one)" = "$(losses aside)" ] || fail "runs side by side have other losses"
for label in 1/6 2/6 3/6 4/6 5/6 6/6; do grep -q "\[$label\].*took" err || fail "no progress of run $label side by side"; done
[ -s aside/report.html ] || fail "no report of runs side by side"
study aside --jobs 3
grep -q 'nothing to train' out || fail "a finished study trains again side by side"

# Stopped, then continued.
"$program" study study.toml --out stopped >out 2>err &
pid=$!
while kill -0 $pid 2>/dev/null && ! grep -q '"step":3,' stopped/runs/rd_attnres-seed1/metrics.jsonl 2>/dev/null; do sleep 0.01; done
kill -TERM $pid
wait $pid
status=$?
[ "$status" = 143 ] || fail "exit code $status after SIGTERM in the third of six runs ($(finished stopped) are finished)"
study stopped
[ "$(losses one)" = "$(losses stopped)" ] || fail "a study that was stopped has other losses"

# Stopped side by side, once by a signal and once by force: no run goes on alone, and all continue.
for signal in TERM KILL; do
  "$program" study study.toml --out "side$signal" --jobs 2 --set train.checkpoint_interval=1 >out 2>err &
  pid=$!
  while kill -0 $pid 2>/dev/null && ! grep -q '"step":3,' "side$signal/runs/standard-seed1/metrics.jsonl" 2>/dev/null; do sleep 0.01; done
  kill "-$signal" $pid
  wait $pid
  status=$?
  [ "$signal" = KILL ] || [ "$status" = 143 ] || fail "exit code $status after SIGTERM side by side"
  # Their locks are free once they are gone.
  for folder in "side$signal"/runs/*; do timeout 10 flock "$folder/lock" true || fail "$folder: a run goes on after SIG$signal"; done
  [ "$(finished "side$signal")" -lt 6 ] || fail "SIG$signal came too late to stop anything"
  study "side$signal" --jobs 2
  [ "$(losses one)" = "$(losses "side$signal")" ] || fail "a study stopped side by side by SIG$signal has other losses"
done

# Runs of one step: a signal always comes in a run's last step. Not all runs are done, so this is not success.
"$program" study study.toml --out brief --set train.tokens=128 --set train.milestones='[128]' >out 2>err &
pid=$!
while kill -0 $pid 2>/dev/null && [ ! -e brief/runs/block_attnres-seed1/run.json ]; do sleep 0.005; done
kill -TERM $pid
wait $pid
status=$?
[ "$(finished brief)" = 6 ] || [ "$status" = 143 ] || fail "exit code $status after SIGTERM with $(finished brief) of 6 runs finished: $(tail -n 1 out)"

# One run fails: the others are done, the report names it, and the next call makes up for it.
mkdir -p failed/runs/block_attnres-seed2
exec 9>failed/runs/block_attnres-seed2/lock
flock 9
"$program" study study.toml --out failed >out 2>err 9>&-
status=$?
[ "$status" = 1 ] || fail "exit code $status where one run failed"
[ "$(grep -c '^depthroute: error: ' err)" = 1 ] || fail "not one line of error where one run failed: $(cat err)"
grep -q 'block_attnres-seed2' err || fail "the failed run is not named"
"$program" study study.toml --out failed --jobs 2 >out 2>err 9>&-
[ "$?" = 1 ] || fail "exit code where one run failed side by side"
[ "$(grep -c '^depthroute: error: ' err)" = 1 ] && grep -q '^block_attnres-seed2 failed: ' err || fail "one run failed side by side: $(cat err)"
[ "$(finished failed)" = 5 ] && [ -s failed/report.html ] || fail "a failed run kept the others or the report"
exec 9>&-
study failed
[ "$(losses one)" = "$(losses failed)" ] || fail "a study with a run made up for has other losses"

# An A/A study: one variant twice, and its spread beside the effects.
study aa --aa --jobs 2
[ "$(ls aa/runs | tr '\n' ' ')" = "block_attnres-again-seed1 block_attnres-again-seed2 block_attnres-seed1 block_attnres-seed2 " ] || fail "A/A runs: $(ls aa/runs)"
grep -q 'these differences mean nothing' out || fail "an A/A study does not say what it is"
for seed in 1 2; do
  cmp -s <(losses one | grep "^block_attnres-seed$seed ") <(names=block_attnres-seed$seed losses aa) || fail "an A/A run is not the study's own"
done
"$program" report one --aa aa >out 2>err || fail "report --aa: $(tail -n 1 err)"
grep -q 'Chance alone' out && grep -q 'Chance alone' one/report.html || fail "report --aa does not say what chance does"
json report one --aa aa --format json
has calibration 'report --aa'
study aa-standard --aa --variant standard --list
grep -q 'standard-again-seed2' out || fail "study --aa --variant"

# Training time as one machine measured it.
json bench step --study study.toml --rounds 1 --json
for key in study_hash machine variants tokens_per_second; do has $key 'bench step --study'; done
cp json speed.json
cp -r one measured
"$program" report measured --throughput speed.json >out 2>err || fail "report --throughput: $(tail -n 1 err)"
grep -q 'measured in turn on one machine' measured/report.html || fail "the report does not say where its training times are from"
json report measured --throughput speed.json --format json
has throughput 'report --throughput'
sed 's/"study_hash": ".*"/"study_hash": "0"/' speed.json > other.json
"$program" report measured --throughput other.json >out 2>err
[ "$?" = 2 ] && [ "$(wc -l < err)" = 1 ] && grep -q other.json err || fail "the measurement of another study: $(cat err)"
"$program" bench step --study study.toml --preset s >out 2>err && fail "bench step takes --study and --preset together"

# Reports.
json report one --format json
for key in format study hash comparisons runs protocol; do has $key report; done
"$program" report one --format json --out report.json >out 2>err || fail "report --out"
cmp -s json report.json || fail "report --out and standard output differ"
[ -s out ] && fail "report --format json --out also prints: $(head -n 1 out)"
"$program" report one --format csv >csv 2>err || fail "report --format csv"
head -n 1 csv | grep -q '^row,' || fail "the CSV does not begin with its header: $(head -n 1 csv)"
for row in run mean pair comparison; do grep -q "^$row," csv || fail "no row '$row' in the CSV"; done
grep -q '"' csv || [ "$(awk -F, '{ print NF }' csv | sort -u | wc -l)" = 1 ] || fail "the CSV's rows differ in length"
"$program" report one --format md >md 2>err || fail "report --format md"
grep -q '^## Verdict' md && grep -q '^| rd_attnres' md || fail "the Markdown has no verdict or no table: $(head -n 5 md)"
"$program" report one --format md | cmp -s md - || fail "two Markdown reports differ"
cp -r one scratched
: > scratched/runs/standard-seed1/test.json
truncate -s 50 scratched/runs/standard-seed2/run.json
"$program" report scratched >out 2>err || fail "report of a study with damaged files: $(tail -n 1 err)"
grep -q 'standard' scratched/report.html || fail "no report of a study with damaged files"

# A run of the study.
json diagnose one/runs/rd_attnres-seed1 --data data --json
for key in variant reads js_divergence; do has $key diagnose; done
json diagnose one/runs/standard-seed1 --data data --json
json diagnose one/runs/rd_attnres-seed1 --data data --against one/runs/rd_attnres-seed2 --json
for key in findings against against_loss unmatched_reads; do has $key 'diagnose --against'; done
"$program" diagnose one/runs/rd_attnres-seed1 --data data --against one/runs/standard-seed1 >out 2>err || fail "diagnose --against: $(tail -n 1 err)"
grep -q '^Against one/runs/standard-seed1.*difference' out && grep -q 'reads of one of the two only: .*self_attn qk' out || fail "diagnose --against another variant: $(tail -n 2 out)"
json evaluate one/runs/rd_attnres-seed1 --data data --split test --json
for key in loss perplexity bits_per_byte tokens; do has $key evaluate; done
loss() { sed -nE 's/.*"loss": ?([^,}]*).*/\1/p' "$1"; }
# To rounding: the study evaluates with its own batch and threads.
awk -v a="$(loss json)" -v b="$(loss one/runs/rd_attnres-seed1/test.json)" 'BEGIN { exit !(a > 0 && b > 0 && (a - b) ^ 2 < 1e-12) }' ||
  fail "evaluate and the study differ: $(loss json)"
json plan study.toml --json
json plan study.toml --power-from one --difference 0.01 --json
for key in power seeds measured_pairs; do has $key 'plan --power-from'; done
"$program" plan study.toml --standard-deviation 0.03 --set decision.minimal_difference=0.03 >out 2>err || fail "plan --standard-deviation"
grep -q 'rd_attnres against block_attnres: 10 seeds' out || fail "plan does not say how many seeds: $(tail -n 4 out)"
json data stats data --json
finish
