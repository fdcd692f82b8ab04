#!/usr/bin/env bash
# A preparation of data killed by force KILLS times (8; the full test is KILLS=20), at random moments, ends in the bytes of one that was left
# alone. It says what it continues, and leaves nothing beside its output.
source "$(dirname "$0")/common.bash"
kills=${KILLS:-8}
seed=${SEED:-$RANDOM}
RANDOM=$seed
mkdir in
make_corpus 60000 > whole.txt
head -n 60000 whole.txt > in/a.txt
tail -n +60001 whole.txt | gzip > in/b.txt.gz
head -n 9000 whole.txt > in/c.txt  # duplicates
options=(in --vocabulary-size 400 --split 0.8,0.1,0.1 --dedup --save-interval 0 --threads 1)
bits() { (cd "$1" && find . -type f | sort | xargs sha256sum); }
state() { grep -o '"documents_read": *[0-9]*' .killed.unfinished/progress.json 2>/dev/null | grep -o '[0-9]*$'; }

begin=$(date +%s%N)
"$program" prepare "${options[@]}" --out whole >out 2>err || fail "prepare: $(tail -n 1 err)"
took=$((($(date +%s%N) - begin) / 1000000))
grep -q '4500 exact duplicates left out' out || fail "duplicates: $(cat out)"
continued=0
for ((kill = 1; kill <= kills; ++kill)); do
  "$program" prepare "${options[@]}" --out killed >out 2>err &
  pid=$!
  before=$(state)
  # Once in four times anywhere; otherwise after a save, so that there is more to continue each time.
  if ((kill % 4 == 0)); then
    sleep "$(printf '%d.%03d' $((RANDOM * took / 32768 / 1000)) $((RANDOM % 1000 * took / 1000 % 1000)))"
  else
    while kill -0 $pid 2>/dev/null && [ "$(state)" = "$before" ]; do sleep 0.001; done
    sleep "0.0$((RANDOM % 30 + 10))"
  fi
  kill -KILL $pid 2>/dev/null || { rm -rf killed; continue; }  # it had ended; the next begins anew
  wait $pid 2>/dev/null
  [ "${before:-0}" -gt 0 ] && continued=$((continued + 1))
  # Killed after the folder was put in place, it is whole.
  [ -e killed ] && { [ "$(bits whole)" = "$(bits killed)" ] || fail "an unfinished folder is in its place (seed $seed)"; rm -rf killed; }
done
"$program" prepare "${options[@]}" --out killed >out 2>err || fail "the killed preparation does not end (seed $seed): $(tail -n 1 err)"
[ "$(bits whole)" = "$(bits killed)" ] || fail "other bytes (seed $seed): $(diff <(bits whole) <(bits killed))"
[ -z "$(find . -maxdepth 1 -name '.killed*')" ] || fail "left: $(find . -maxdepth 1 -name '.killed*')"
echo "$kills kills (seed $seed), $continued of them of a preparation that continued another"
[ "$continued" -gt 0 ] || fail "no preparation continued another"

# A full disk stops it; with room again it goes on.
if [ "$(id -u)" = 0 ] && mkdir small && mount -t tmpfs -o size=2m none small 2>/dev/null; then
  "$program" prepare "${options[@]}" --out small/data >out 2>err
  [ $? = 1 ] && grep -q 'No space left' err || fail "a full disk: $(tail -n 1 err)"
  mount -o remount,size=64m small
  "$program" prepare "${options[@]}" --out small/data >out 2>err || fail "with room again: $(tail -n 1 err)"
  [ "$(bits whole)" = "$(bits small/data)" ] || fail "other bytes after a full disk"
  umount small
fi
finish
