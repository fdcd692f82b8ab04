#!/usr/bin/env bash
# One process against two and four on this machine's cores: tokens per second, bytes through the loopback device a step, memory of the largest
# process, with and without the optimizer's state shared out, and how far the losses are apart. As root, in a network namespace of its own, so that
# the bytes are of nothing else; otherwise with what else the device carries.
#   bench/processes.sh [PRESET [STEPS [BATCH_WINDOWS]]]     (micro 200 8)
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" = 0 ] && [ -z "${DEPTHROUTE_OWN_NETWORK:-}" ] && unshare --net true 2>/dev/null; then
  DEPTHROUTE_OWN_NETWORK=1 exec unshare --net bash -c 'ip link set lo up && exec "$@"' _ "bench/processes.sh" "$@"
fi
preset=${1:-micro} steps=${2:-200} windows=${3:-8}
program=$PWD/build/depthroute
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
gzip -dc /usr/share/dictd/gcide.dict.dz | head -c 8000000 > text.txt || true
"$program" prepare text.txt --out data --vocabulary-size 2048 --split 0.999,0.0005,0.0005 2> /dev/null > /dev/null
cat > run.toml <<TOML
seed = 1
model.preset = "$preset"
model.vocabulary = 2048
residual.variant = "rd_attnres"
data.folder = "data"
[train]
tokens = 1000
batch_windows = $windows
micro_batch_windows = 1
learning_rate = 1e-3
log_interval = 1
TOML
context=$(case $preset in tiny) echo 32 ;; micro) echo 128 ;; mini) echo 256 ;; *) echo 1024 ;; esac)
tokens=$((steps * windows * context))
bytes() { awk '$1 == "lo:" { print $10 }' /proc/net/dev; }
losses() { sed -nE 's/.*"event":"train".*"loss":([0-9.]+).*/\1/p' "$1/metrics.jsonl"; }
run() {
  local name=$1 count=$2 label=$3 before rank pids=() port=$((20000 + RANDOM % 10000))
  shift 3
  before=$(bytes)
  for ((rank = 0; rank < count; ++rank)); do
    RANK=$rank WORLD_SIZE=$count MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      "$program" train run.toml --out "$name" --set train.tokens=$tokens "$@" > out.$rank 2> err.$rank &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do wait "${pids[rank]}" || { cat "err.$rank"; exit 1; }; done
  local after rate memory apart
  after=$(bytes)
  rate=$(grep '"event":"train"' "$name/metrics.jsonl" | tail -n 1 | grep -o '"tokens_per_second":[0-9.]*' | grep -o '[0-9.]*$')
  memory=$(grep -o '"peak_bytes":[0-9]*' "$name/metrics.jsonl" | grep -o '[0-9]*$')
  apart=$(paste <(losses one) <(losses "$name") | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d } END { printf "%.1e", most }')
  [ "$name" = one ] && one=$rate
  awk -v n="$label" -v c="$count" -v r="$rate" -v o="$one" -v b=$((after - before)) -v s="$steps" -v m="$memory" -v a="$apart" \
    'BEGIN { printf "| %s | %d | %.0f | %.2f | %.2f | %.2f | %s |\n", n, c, r, r / o, b / s / 1e6, m / 1e9, a }'
}
echo "| | processes | tokens/s | over one | MB sent a step | peak GB of a process | largest difference of a loss |"
echo "|---|---|---|---|---|---|---|"
run one 1 ""
run two 2 ""
run two_whole_state 2 "optimizer state not shared out" --set train.shard_optimizer=false
run four 4 ""
