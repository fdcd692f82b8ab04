#!/usr/bin/env bash
# A disk that returns errors, from some call on (failing_disk.cc): the run stops with one clear line that names the file, what was on the disk stays
# good, and on a good disk the run goes on to the bits of one that was never disturbed. So do preparation and a study's runs stop with a line.
source "$(dirname "$0")/common.bash"
library=$(dirname "$program")/tests/libfailing_disk.so
[ -e "$library" ] || { echo "there is no $library"; exit 1; }
ldd "$program" | grep -q libasan && { echo "AddressSanitizer wants to be the first library: left out"; exit 77; }
prepare_data
make_corpus 400 > corpus.txt
bits() { cat "$(ls -d "$1"/checkpoints/step-* | tail -n 1)"/{model,optimizer}.safetensors | sha256sum; }
"$program" train run.toml --out whole > out 2> err || fail "training: $(tail -n 1 err)"

disturbed=0
for call in write fsync rename open; do
  for after in 0 1 2 5 9 14 20 31 47; do
    run=run-$call-$after
    FAIL_CALL=$call FAIL_AFTER=$after FAIL_UNDER=$run LD_PRELOAD=$library "$program" train run.toml --out $run > out 2> err
    code=$?
    if [ $code != 0 ]; then
      disturbed=$((disturbed + 1))
      [ $code = 1 ] || [ $code = 2 ] || fail "$call fails after $after: exit code $code"
      [ "$(grep -c 'error: ' err)" = 1 ] && grep -q "error: .*$run.*Input/output error" err || fail "$call fails after $after: $(tail -n 2 err)"
    fi
    "$program" train run.toml --out $run > out 2> err || fail "after $call had failed after $after, on a good disk: $(tail -n 1 err)"
    ! grep -q 'set aside' err || fail "$call failed after $after and left a damaged checkpoint: $(grep 'set aside' err)"
    [ "$(bits $run)" = "$(bits whole)" ] || fail "$call failed after $after: other bits"
    [ -z "$(find $run -name '.*tmp-*')" ] || fail "$call failed after $after: temporaries stay: $(find $run -name '.*tmp-*' | head -n 1)"
    rm -rf $run
  done
done
[ $disturbed -ge 20 ] || fail "only $disturbed runs were disturbed"

for call in write fsync rename open; do
  for after in 0 1 3; do
    FAIL_CALL=$call FAIL_AFTER=$after FAIL_UNDER=prepared LD_PRELOAD=$library "$program" prepare corpus.txt --out prepared --vocabulary-size 300 \
      --split 0.8,0.1,0.1 > out 2> err
    code=$?
    [ $code = 0 ] && { rm -rf prepared .prepared*; continue; }
    [ "$(grep -c 'error: ' err)" = 1 ] && grep -q 'error: .*Input/output error' err || fail "prepare, $call fails after $after: $(tail -n 2 err)"
    [ ! -e prepared ] || fail "prepare, $call fails after $after: there is a result"
    "$program" prepare corpus.txt --out prepared --vocabulary-size 300 --split 0.8,0.1,0.1 > out 2> err || fail "prepare on a good disk: $(tail -n 1 err)"
    cmp -s prepared/train-00000.bin data/train-00000.bin || fail "prepare, $call failed after $after: other bytes"
    rm -rf prepared .prepared*
  done
done
finish
