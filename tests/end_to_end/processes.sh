#!/usr/bin/env bash
# Several processes train one model: the losses of one process to rounding, the same bits for the same number of them, also after kills and with
# the optimizer's state shared out or not; a checkpoint of some resumes in others.
source "$(dirname "$0")/common.bash"
prepare_data
settings=(--set train.batch_windows=8 --set train.tokens=10240 --set "train.milestones=[5120, 10240]" --set train.validation_interval=7)
train() { launch "$1" "$2" "${settings[@]}" "${@:3}"; codes > codes; }
expect_codes() { [ "$(cat codes)" = "$1 " ] || fail "$2: exit codes $(cat codes), expected $1: $(tail -qn 1 err.*)"; }
bits() { cat "$(ls -d "$1"/checkpoints/step-* | tail -n 1)"/{model,optimizer}.safetensors | sha256sum; }
losses() { sed -nE 's/.*"event":"(train|validation)","step":([0-9]+).*"loss":([0-9.]+).*/\1 \2 \3/p' "$1/metrics.jsonl"; }
# The same steps, and losses of the same size up to what another order of sums makes of them.
expect_same_losses() {
  paste <(losses "$1") <(losses "$2") | awk '$1 != $4 || $2 != $5 || ($3 - $6) ^ 2 > 1e-10 { bad = 1 } END { exit bad || NR < 47 }' ||
    fail "$1 and $2 have other losses"
}

train 1 one; expect_codes "0" "one process"
train 2 two; expect_codes "0 0" "two processes"
train 4 four; expect_codes "0 0 0 0" "four processes"
expect_same_losses one two
expect_same_losses one four
grep -q '^finished' out.0 || fail "rank 0 does not say that it has finished"
[ -z "$(cat out.1 out.2 out.3 err.1 err.2 err.3)" ] || fail "other ranks speak: $(cat out.[123] err.[123] | head -n 3)"
grep -q '"processes": 4' four/run.json || fail "run.json does not say how many processes there were"
train 4 four; expect_codes "0 0 0 0" "a finished run"
grep -q '^already finished' out.0 || fail "a finished run is not recognised"

train 2 again; expect_codes "0 0" "two processes again"
[ "$(bits two)" = "$(bits again)" ] || fail "two processes have other bits the second time"
train 2 whole_state --set train.shard_optimizer=false; expect_codes "0 0" "the optimizer's state not shared out"
[ "$(bits two)" = "$(bits whole_state)" ] || fail "other bits where each process keeps the optimizer's whole state"
train 4 micro --set train.micro_batch_windows=1; expect_codes "0 0 0 0" "micro-batches"
expect_same_losses one micro

# Killed at some step, in turn the first process and another: the others end by themselves, and soon.
steps() { cat "$1/metrics.jsonl" 2>/dev/null | grep -c '"event":"train"'; }
for victim in 0 3 1; do
  before=$(steps killed)
  launch 4 killed "${settings[@]}"
  while kill -0 "${pids[victim]}" 2>/dev/null && [ "$(steps killed)" -le $((before + 5)) ]; do sleep 0.01; done
  kill -KILL "${pids[victim]}" 2>/dev/null || fail "rank $victim has ended before it was killed"
  SECONDS=0
  codes > codes 2>/dev/null
  [ $SECONDS -lt 30 ] || fail "rank $victim was killed, and the others took $SECONDS s to end"
  expected=(1 1 1 1); expected[victim]=137
  expect_codes "${expected[*]}" "rank $victim killed"
  for rank in 0 1 2 3; do
    [ $rank = $victim ] || grep -q "error: rank $rank of 4: another process has ended or cannot be reached (.*); the same command continues" err.$rank ||
      fail "rank $victim killed; rank $rank says $(tail -n 1 err.$rank)"
  done
done
train 4 killed; expect_codes "0 0 0 0" "the killed run continued"
[ "$(bits four)" = "$(bits killed)" ] || fail "other bits after kills"
expect_same_losses one killed

# A signal that only one of them gets stops all, with a checkpoint; others in number go on.
launch 4 stopped "${settings[@]}"
while kill -0 "${pids[2]}" 2>/dev/null && [ "$(steps stopped)" -lt 9 ]; do sleep 0.01; done
kill -TERM "${pids[2]}"
codes > codes
expect_codes "143 143 143 143" "SIGTERM to rank 2"
grep -q '^stopped and saved' out.0 || fail "rank 0 does not say that it has stopped"
train 2 stopped; expect_codes "0 0" "four go on as two"
expect_same_losses one stopped
launch 2 stopped_two "${settings[@]}"
while kill -0 "${pids[0]}" 2>/dev/null && [ "$(steps stopped_two)" -lt 9 ]; do sleep 0.01; done
kill -TERM "${pids[@]}"
codes > codes
expect_codes "143 143" "SIGTERM to both"
train 1 stopped_two; expect_codes "0" "two go on as one"
expect_same_losses one stopped_two

# Mistakes.
train 3 mistake; expect_codes "2 2 2" "a batch that is not divided"
grep -q 'train.batch_windows = 8 is not divided by the 3 processes' err.1 || fail "not divided: $(cat err.1)"
for variables in RANK=0 WORLD_SIZE=2 "RANK=2 WORLD_SIZE=2" "RANK=0 WORLD_SIZE=many" "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=0" \
  "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=2 MASTER_ADDR=127.0.0.1"; do
  env $variables "$program" train run.toml --out mistake > out 2> err
  [ $? = 2 ] && grep -q 'error: the environment has' err && [ "$(wc -l < err)" = 1 ] || fail "$variables: $(cat err)"
done
[ ! -e mistake/run.json ] || fail "mistakes leave a run"
pids=()
for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 1)) "$program" train run.toml --out differs --set seed=$rank > out.$rank 2> err.$rank &
  pids+=($!)
done
codes > codes
grep -q 'rank 1 of 2: the config or the data differ from those of rank 0' err.1 || fail "another config: $(cat err.1)"
! grep -q '^0\| 0' codes || fail "another config: exit codes $(cat codes)"

# As Slurm's srun starts them; the step's machines are given as it writes them.
pids=()
for rank in 0 1; do
  SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=2 SLURM_STEP_ID=0 SLURM_JOB_ID=$RANDOM$((port % 7)) SLURM_STEP_NODELIST="localhost" MASTER_PORT=$((port + 2)) \
    "$program" train run.toml --out slurm "${settings[@]}" > out.$rank 2> err.$rank &
  pids+=($!)
done
codes > codes
expect_codes "0 0" "as Slurm starts them"
[ "$(bits two)" = "$(bits slurm)" ] || fail "other bits as Slurm starts them"
finish
