#!/usr/bin/env bash
# A run that is killed, stopped, or finds its newest checkpoint damaged or the disk full ends with the bits of one that was left alone.
source "$(dirname "$0")/common.bash"
trap 'umount "$work/small" 2>/dev/null; rm -rf "$work"' EXIT
prepare_data
sed -i 's/^checkpoint_interval = 2/checkpoint_interval = 1/; s/^tokens = 2560/tokens = 12800/; s/1280, 2560/6400, 12800/' run.toml

last_checkpoint() { ls -d "$1"/checkpoints/step-* | tail -n 1; }
bits() { cat "$(last_checkpoint "$1")"/{model,optimizer}.safetensors | sha256sum; }
# Metrics without what is measured in time.
events() { grep -v '"event":"memory"' "$1/metrics.jsonl" | sed -E 's/"(seconds|tokens_per_second)":[^,}]*//g'; }
same() {
  [ "$(bits a)" = "$(bits "$1")" ] || fail "$1: other weights or optimizer state"
  [ "$(events a)" = "$(events "$1")" ] || fail "$1: other metrics"
}
train() { "$program" train run.toml --out "$@" >out 2>err; }
resume() { train "$@" || fail "resuming $*: $(tail -n 1 err)"; }
# start FOLDER STEP: in the background, until its metrics hold the step (or it ends).
start() {
  "$program" train run.toml --out "$1" >out 2>err &
  pid=$!
  while kill -0 "$pid" 2>/dev/null && ! grep -q "\"step\":$2," "$1/metrics.jsonl" 2>/dev/null; do sleep 0.01; done
}
# As if the process had been killed after its last checkpoint.
unfinish() { sed -i '/"event":"\(end\|memory\)"/d' "$1/metrics.jsonl"; }
damage() { for step in "${@:2}"; do truncate -s -8 "$1/checkpoints/step-000000$step/model.safetensors"; done; }

train a || fail "training"
[ "$(basename "$(last_checkpoint a)")" = step-000000100 ] || fail "not 100 steps: $(last_checkpoint a)"

# Killed at random moments.
seed=$RANDOM
RANDOM=$seed
kills=0
for round in 1 2 3 4 5 6; do
  start b $((round * 12 + RANDOM % 12))
  sleep "0.0$((RANDOM % 10))"
  kill -9 "$pid" 2>/dev/null && kills=$((kills + 1))
  wait "$pid" 2>/dev/null
done
[ "$kills" -ge 3 ] || fail "only $kills processes lived long enough to be killed (seed $seed)"
mkdir -p b/checkpoints/.step-000000026.tmp-999999  # what a process leaves that is killed while it writes
resume b
same b
[ -z "$(find b -name '.*tmp-*')" ] || fail "killed processes leave for ever: $(find b -name '.*tmp-*' | tr '\n' ' ')"
before=$(find b -type f ! -name lock -exec sha256sum {} + | sort)
resume b
[ "$(find b -type f ! -name lock -exec sha256sum {} + | sort)" = "$before" ] || fail "training again changed a finished run"

# Killed before the first checkpoint, and between checkpoints.
start e 1
kill -9 "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
resume e --set train.checkpoint_interval=7
same e

# Stopped.
for signal in TERM INT; do
  [ "$signal" = TERM ] && expected=143 || expected=130
  start "c$signal" 20
  kill "-$signal" "$pid"
  wait "$pid"
  status=$?
  [ "$status" = "$expected" ] || fail "exit code $status after SIG$signal instead of $expected"
  saved=$(sed -n 's/^stopped and saved: \(.*\); the same.*/\1/p' out)
  [ -n "$saved" ] && [ "$saved" = "$(last_checkpoint "c$signal")" ] || fail "SIG$signal: '$saved' is not the newest checkpoint"
  "$program" evaluate "$saved" --data data >out 2>&1 || fail "SIG$signal: '$saved' cannot be read: $(tail -n 1 out)"
  resume "c$signal"
  same "c$signal"
done

# The newest checkpoint is damaged.
cp -r a d
rm -r d/checkpoints/step-000000100
unfinish d
damage d 099
echo '{"event":"train","step":100,"tokens":0,"loss":0}' >> d/metrics.jsonl
resume d
grep -q '^warning: .*step-000000099' err || fail "no warning names the damaged checkpoint"
same d

# The newest checkpoint of a finished run is damaged: it is made again.
cp -r a f
damage f 100
resume f
grep -q '^warning: .*step-000000100' err || fail "a finished run with a damaged checkpoint: no warning, and '$(cat out)'"
same f

# The two newest are damaged, and the process is stopped before it has come by them: what it saved must stay.
cp -r a g
unfinish g
damage g 099 100
sed -i '/"step":\(5[1-9]\|[6-9].\|100\),/d' g/metrics.jsonl
start g 60
kill -TERM "$pid"
wait "$pid"
[ "$?" = 143 ] || fail "exit code after SIGTERM beside two damaged checkpoints"
saved=$(sed -n 's/^stopped and saved: \(.*\); the same.*/\1/p' out)
"$program" evaluate "$saved" --data data >out 2>&1 || fail "beside damaged checkpoints '$saved' is said to be saved: $(tail -n 1 out)"
newest_good=$(for c in g/checkpoints/step-*; do "$program" evaluate "$c" --data data >/dev/null 2>&1 && basename "$c"; done | tail -n 1)
[[ "$newest_good" > step-000000059 ]] || fail "stopped after step 60, but the newest good checkpoint is $newest_good"
resume g
same g

# All are damaged: from the beginning.
cp -r a h
unfinish h
damage h 050 099 100
resume h
[ "$(grep -c '^warning: ' err)" = 3 ] || fail "not one warning for each damaged checkpoint: $(cat err)"
same h

# The disk fills up, and is made larger.
if mkdir small && mount -t tmpfs -o size=700k tmpfs small 2>/dev/null; then
  "$program" train run.toml --out small/run >out 2>err
  status=$?
  [ "$status" = 1 ] || fail "exit code $status on a full disk instead of 1: $(tail -n 1 err)"
  mount -o remount,size=20m small
  resume small/run
  same small/run
  [ -z "$(find small -name '.*tmp-*')" ] || fail "a full disk leaves for ever: $(find small -name '.*tmp-*' | tr '\n' ' ')"
  umount small
fi
finish
