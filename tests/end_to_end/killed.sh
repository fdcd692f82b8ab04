#!/usr/bin/env bash
# A run killed by force KILLS times (12; the full test is KILLS=100), at random moments: while it computes, validates, and writes its
# checkpoint of every step. It ends with the bits of one that was left alone, weights, optimizer and every event of its metrics.
source "$(dirname "$0")/common.bash"
prepare_data
kills=${KILLS:-12}
tokens=$(((kills * 8 + 20) * 128))
settings=(--set train.tokens=$tokens --set "train.milestones=[$((tokens / 2)), $tokens]" --set train.checkpoint_interval=1
  --set train.validation_interval=3 --set train.micro_batch_windows=1)
train() { "$program" train run.toml "${settings[@]}" --out "$1"; }
last_checkpoint() { ls -d "$1"/checkpoints/step-* | tail -n 1; }
bits() { cat "$(last_checkpoint "$1")"/{model,optimizer}.safetensors | sha256sum; }
events() { grep -v '"event":"memory"' "$1/metrics.jsonl" | sed -E 's/"(seconds|tokens_per_second)":[^,}]*//g'; }
steps() { cat "$1/metrics.jsonl" 2>/dev/null | grep -c '"event":"train"'; }

train whole >out 2>err || fail "training: $(tail -n 1 err)"
seed=${SEED:-$RANDOM}
RANDOM=$seed
writing=0
for ((kill = 1; kill <= kills; ++kill)); do
  before=$(steps killed)
  "$program" train run.toml "${settings[@]}" --out killed >out 2>err &  # no function: its subshell would be what is killed
  pid=$!
  # One step further at least, so that the run gets on; then anywhere in the next steps.
  while kill -0 $pid 2>/dev/null && [ "$(steps killed)" -le "$before" ]; do sleep 0.002; done
  sleep "0.0$((RANDOM % 50 + 10))"
  kill -KILL $pid 2>/dev/null || { fail "kill $kill of $kills: the run had ended (seed $seed): $(tail -n 1 err)"; break; }
  wait $pid 2>/dev/null
  ls -d killed/checkpoints/.step-*tmp-* >/dev/null 2>&1 && writing=$((writing + 1))
done
train killed >out 2>err || fail "the killed run does not end (seed $seed): $(tail -n 1 err)"
echo "$kills kills (seed $seed), $writing of them while a checkpoint was being written"
[ "$(bits whole)" = "$(bits killed)" ] || fail "other weights or optimizer state (seed $seed)"
[ "$(events whole)" = "$(events killed)" ] || fail "other metrics (seed $seed): $(diff <(events whole) <(events killed) | head -n 2)"
[ -z "$(find killed -name '.*tmp-*')" ] || fail "killed processes leave for ever: $(find killed -name '.*tmp-*' | head -n 2)"
finish
