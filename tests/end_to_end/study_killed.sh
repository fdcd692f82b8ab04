#!/usr/bin/env bash
# A study killed ten times by force, in whatever it was doing, ends in the figures of one that never was: every number in every run's
# metrics, measured times and memory aside, and the report's.
source "$(dirname "$0")/common.bash"
prepare_data
write_study
settings=(--set train.checkpoint_interval=1 --set train.validation_interval=2)

# The last event of a step counts, as in the report: what a run repeats after a kill it writes again.
figures() {
  for metrics in "$1"/runs/*/metrics.jsonl; do
    grep -v '"event":"memory"' "$metrics" | sed -E 's/,"(seconds|tokens_per_second)":[^,}]*//g' |
      awk -v run="$(basename "$(dirname "$metrics")")" '{
        match($0, /"event":"[a-z]*","step":[0-9]*/); key = substr($0, RSTART, RLENGTH)
        if (!(key in last)) order[++n] = key
        last[key] = $0 } END { for (i = 1; i <= n; ++i) print run, last[order[i]] }' | sort
  done
}
trained() { cat "$1"/runs/*/metrics.jsonl 2>/dev/null | grep -c '"event":"train"'; }
# The CSV without the columns that rest on measured time.
numbers() { "$program" report "$1" --format csv 2>err | cut -d, -f1-10,12-20,22-; }

"$program" study study.toml "${settings[@]}" --out whole >out 2>err || fail "study: $(tail -n 1 err)"
RANDOM=20260801
kills=0
while [ "$kills" -lt 10 ]; do
  jobs=$((1 + kills % 2)) before=$(trained killed)
  "$program" study study.toml "${settings[@]}" --out killed --jobs "$jobs" >out 2>err &
  pid=$!
  while kill -0 $pid 2>/dev/null && [ "$(trained killed)" -lt $((before + 4)) ]; do sleep 0.01; done
  sleep "0.0$((RANDOM % 90 + 10))"
  kill -KILL $pid 2>/dev/null || break
  wait $pid 2>/dev/null
  for folder in killed/runs/*; do timeout 10 flock "$folder/lock" true || fail "$folder: a run goes on alone"; done
  kills=$((kills + 1))
done
[ "$kills" = 10 ] || fail "the study was over after $kills kills"
"$program" study study.toml "${settings[@]}" --out killed >out 2>err || fail "the killed study does not end: $(tail -n 1 err)"
[ "$(figures whole | wc -l)" -gt 60 ] || fail "too few figures: $(figures whole | wc -l)"
[ "$(figures whole)" = "$(figures killed)" ] || fail "other figures: $(diff <(figures whole) <(figures killed) | head -n 4)"
[ "$(numbers whole | wc -l)" -gt 10 ] || fail "no report: $(tail -n 1 err)"
[ "$(numbers whole)" = "$(numbers killed)" ] || fail "other numbers in the report: $(diff <(numbers whole) <(numbers killed) | head -n 4)"
"$program" report killed --out first.html --format html >out 2>err && "$program" report killed --out second.html --format html >out 2>err || fail "report: $(tail -n 1 err)"
cmp -s first.html second.html || fail "two reports of the same runs differ"
finish
