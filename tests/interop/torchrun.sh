#!/usr/bin/env bash
# `train` under PyTorch's torchrun: two processes have the bits of two that were started by hand; a process that is killed makes torchrun start all
# of them again (--max-restarts), and the run goes on by itself to the same bits.
#   tests/interop/torchrun.sh build/depthroute .venv-interop/bin/torchrun
torchrun=$(realpath "$2")
source "$(dirname "$0")/../end_to_end/common.bash"
prepare_data
settings=(--set train.batch_windows=8 --set train.tokens=10240 --set "train.milestones=[5120, 10240]")
bits() { cat "$(ls -d "$1"/checkpoints/step-* | tail -n 1)"/{model,optimizer}.safetensors | sha256sum; }
launch 2 by_hand "${settings[@]}"
codes > codes

"$torchrun" --no-python --nproc-per-node 2 "$program" train run.toml --out torchrun "${settings[@]}" > out 2> err || fail "torchrun: $(tail -n 3 err)"
grep -q '^finished' out || fail "torchrun: no end: $(cat out)"
[ "$(bits by_hand)" = "$(bits torchrun)" ] || fail "other bits under torchrun"

"$torchrun" --standalone --max-restarts 2 --no-python --nproc-per-node 2 "$program" train run.toml --out killed "${settings[@]}" > out 2> err &
pid=$!
for ((i = 0; i < 3000; ++i)); do
  [ "$(cat killed/metrics.jsonl 2>/dev/null | grep -c '"event":"train"')" -ge 8 ] && break
  sleep 0.01
done
victim=$(pgrep -f "^$program train run.toml --out killed" | tail -n 1)
kill -KILL "$victim" || fail "the run has ended before it was killed"
wait $pid || fail "torchrun does not restart: $(tail -n 3 err)"
[ "$(bits by_hand)" = "$(bits killed)" ] || fail "other bits after a restart"
finish
