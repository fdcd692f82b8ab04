#!/usr/bin/env bash
# A process that is there but does not answer: suspended, or behind a network that is down. The others end within a minute with one clear line.
# The second needs network namespaces, for which one must be root, and `ip`; without them it is left out.
source "$(dirname "$0")/common.bash"
prepare_data
long=(--set train.tokens=10240000 --set "train.milestones=[10240000]" --set train.checkpoint_interval=5)
wait_for_steps() {
  for ((i = 0; i < 3000; ++i)); do
    [ "$(cat "$1/metrics.jsonl" 2>/dev/null | grep -c '"event":"train"')" -ge 10 ] && return
    sleep 0.02
  done
  fail "$1 does not get on: $(cat err.*)"
}
# expect_lost PLACE RANK: that process, pids[RANK], ends by itself and says why.
expect_lost() {
  SECONDS=0
  wait "${pids[$2]}"
  code=$?
  [ $code = 1 ] || fail "$1: exit code $code: $(cat err.$2)"
  [ $SECONDS -lt 60 ] || fail "$1: it took $SECONDS s"
  [ "$(wc -l < err.$2)" -lt 30 ] && tail -n 1 err.$2 | grep -q "error: rank $2 of 2: another process has ended or cannot be reached (.*); the same command continues" ||
    fail "$1: $(tail -n 2 err.$2)"
}

mkdir suspended && cd suspended && ln -s ../data ../run.toml . || exit 1
launch 2 run "${long[@]}"
wait_for_steps run
kill -STOP "${pids[1]}"
suspended=${pids[1]} other=${pids[0]}
cd ..

[ "$(id -u)" = 0 ] && ip netns add depthroute-$$-0 2>/dev/null || echo "no network namespaces here: that part is left out"
if ip netns list 2>/dev/null | grep -q depthroute-$$-0; then
  trap 'for n in 0 1; do ip netns del depthroute-$$-$n; done 2>/dev/null; rm -rf "$work"' EXIT
  ip netns add depthroute-$$-1
  ip link add dr0 netns depthroute-$$-0 type veth peer name dr1 netns depthroute-$$-1
  for n in 0 1; do
    ip -n depthroute-$$-$n addr add 10.77.0.$((n + 1))/24 dev dr$n
    ip -n depthroute-$$-$n link set dr$n up
    ip -n depthroute-$$-$n link set lo up
  done
  start() {
    pids=()
    for n in 0 1; do
      RANK=$n WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=dr$n \
        ip netns exec depthroute-$$-$n "$program" train run.toml --out namespaces "$@" > out.$n 2> err.$n &
      pids+=($!)
    done
  }
  start "${long[@]}"
  wait_for_steps namespaces
  ip -n depthroute-$$-1 link set dr1 down
  expect_lost "network down" 0
  expect_lost "network down" 1
  ip -n depthroute-$$-1 link set dr1 up
  start "${long[@]}"
  before=$(ls namespaces/checkpoints | tail -n 1)
  for ((i = 0; i < 3000; ++i)); do
    [ "$(ls namespaces/checkpoints | tail -n 1)" \> "$before" ] && break
    sleep 0.02
  done
  [ "$(ls namespaces/checkpoints | tail -n 1)" \> "$before" ] || fail "it does not go on: $(cat err.*)"
  kill -TERM "${pids[@]}"
  codes > codes
  [ "$(cat codes)" = "143 143 " ] || fail "stopping the run that went on: $(cat codes err.*)"
fi

cd suspended
pids=("$other")
expect_lost "rank 1 suspended" 0
{ kill -KILL "$suspended"; wait "$suspended"; } 2>/dev/null
finish
