#!/usr/bin/env bash
# Every variant as a user meets it: trains, resumes to the same bits, is evaluated, diagnosed and converted.
source "$(dirname "$0")/common.bash"
prepare_data
sed -i 's/^checkpoint_interval = 2/checkpoint_interval = 4/; s/^tokens = 2560/tokens = 1280/; s/1280, 2560/1280/' run.toml

last_checkpoint() { ls -d "$1"/checkpoints/step-* | tail -n 1; }
bits() { cat "$(last_checkpoint "$1")"/{model,optimizer}.safetensors | sha256sum; }
works() { "$program" "$@" >out 2>err || fail "did not work: $* ($(tail -n 1 err))"; }
loss() { sed -nE 's/.*"loss": ?([^,}]*).*/\1/p' "$1"; }

works plan --preset tiny --json
variants=$(sed -nE 's/.*"variant": "([a-z_]*)".*/\1/p' out)
[ "$(echo "$variants" | wc -l)" -ge 15 ] || fail "plan names too few variants: $variants"
for variant in $variants; do
  works train run.toml --out "$variant" --set residual.variant="$variant"
  # As if it had been killed after its second checkpoint.
  cp -r "$variant" resumed
  rm -r "$(last_checkpoint resumed)"
  sed -i '/"event":"\(end\|memory\)"/d' resumed/metrics.jsonl
  works train run.toml --out resumed --set residual.variant="$variant"
  [ "$(bits "$variant")" = "$(bits resumed)" ] || fail "$variant: a resumed run has other bits"
  rm -r resumed
  works evaluate "$variant" --data data --json
  evaluated=$(loss out)
  works diagnose "$variant" --data data --json
  reads=$(grep -c '"role"' out)
  case $variant in
    standard | denseformer | muddformer) [ "$reads" = 0 ] || fail "$variant: $reads depth reads" ;;
    *) [ "$reads" -ge 3 ] || fail "$variant: only $reads depth reads" ;;
  esac
  # The same variant again is the same model.
  works convert "$variant" --variant "$variant" --out same
  works evaluate same --data data --json
  [ -n "$evaluated" ] && [ "$(loss out)" = "$evaluated" ] || fail "$variant: converted to itself, its loss is $(loss out), not $evaluated"
  rm -r same
done

# A refined variant starts where the other stopped, by command and by config.
works evaluate block_attnres --data data --json
block=$(loss out)
works convert block_attnres --variant rd_attnres --out refined
grep -q 'query.v from model.layers.0.self_attn.depth_read.query.qkv' out || fail "convert does not say what it copied: $(cat out)"
works evaluate refined --data data --json
awk -v a="$(loss out)" -v b="$block" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-10) }' || fail "Block AttnRes as RD-AttnRes: $(loss out), not $block"
for start in refined block_attnres; do
  works train run.toml --out "from-$start" --set train.initial_checkpoint="$start" --set train.learning_rate=1e-9
  awk -v a="$(grep -m 1 '"event":"validation"' "from-$start/metrics.jsonl" > first; loss first)" -v b="$block" \
    'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-6) }' || fail "training from $start does not start at $block: $(cat first)"
done
[ "$(bits from-refined)" = "$(bits from-block_attnres)" ] || fail "converted by command and by config, a run has other bits"

# What does not fit.
refuses() {
  "$program" "${@:2}" >out 2>err
  [ "$?" = 2 ] && grep -qF -- "$1" err || fail "not refused with '$1': ${*:2} ($(tail -n 1 err))"
}
refuses 'refined' convert block_attnres --variant rd_attnres --out refined
refuses "did you mean 'rd_attnres'" convert block_attnres --variant rd_atnres --out x
refuses 'model.width' train run.toml --out x --set train.initial_checkpoint=refined --set model.width=64
refuses 'neither a checkpoint' train run.toml --out x --set train.initial_checkpoint=data
refuses 'train.initial_weights' train run.toml --out from-refined --set train.initial_checkpoint=block_attnres --set train.learning_rate=1e-9
printf '\x55' | dd of=refined/model.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
refuses 'refined/model.safetensors' train run.toml --out x --set train.initial_checkpoint=refined
finish
