#!/usr/bin/env bash
# Bad input of every kind gives one clear line that names the culprit, and the promised exit code: 2 for input and usage, 1 for failures
# while running. What was on disk before stays as it was.
source "$(dirname "$0")/common.bash"
trap 'umount "$work/full" 2>/dev/null; rm -rf "$work"' EXIT
# An absurd size must not take the machine with it. AddressSanitizer reserves more than any limit, and refuses such sizes itself.
export ASAN_OPTIONS=allocator_may_return_null=1
(ulimit -v 16000000 && "$program" --version >/dev/null 2>&1) && ulimit -v 16000000
prepare_data

# expect CODE PATTERN COMMAND...: the exit code, and one line of error that matches.
expect() {
  local code=$1 pattern=$2 status
  shift 2
  timeout 15 "$program" "$@" >out 2>err 9>&-
  status=$?
  [ "$status" = "$code" ] || { fail "exit code $status instead of $code: $* ($(tail -n 1 err))"; return; }
  [ "$(grep -ac '^depthroute: error: ' err)" = 1 ] || fail "not one line of error: $* ($(cat err))"
  [ "$(tail -n 1 err | grep -ac '^depthroute: error: ')" = 1 ] || fail "something follows the error: $* ($(cat err))"
  grep -a '^depthroute: error: ' err | grep -aqF -- "$pattern" || fail "the error does not say '$pattern': $* ($(tail -n 1 err))"
}
works() { timeout 60 "$program" "$@" >out 2>err || fail "did not work: $* ($(tail -n 1 err))"; }
train() { expect "$1" "$2" train run.toml --out "${@:3}"; }
contents() { find "$@" -type f ! -name lock -exec sha256sum {} + | sort; }
prepare() { expect 2 "$1" prepare "$2" --out x --vocabulary-size 300 "${@:3}"; }

# Usage.
expect 2 'nonsense' nonsense
expect 2 'subcommand'
expect 2 '--out' train run.toml
expect 2 '--sideways' train run.toml --out x --sideways
expect 2 'missing.toml' train missing.toml --out x
expect 2 'data' train data --out x
expect 2 'enormous' plan --preset enormous
expect 2 'preset' plan
expect 2 '--aa' study run.toml --out x --variant standard
expect 2 'no study' plan run.toml --standard-deviation 0.1
expect 2 '--preset' plan --preset tiny --standard-deviation 0.1
expect 2 'standard-deviation' plan run.toml --standard-deviation -1
expect 2 'power' plan run.toml --standard-deviation 1 --power 2
expect 2 'key=value' train run.toml --out x --set nothing
expect 2 'output folder' prepare corpus.txt --out ''

# Documents.
prepare 'missing.txt' missing.txt
: > empty.txt
prepare 'empty.txt' empty.txt
mkdir hollow
prepare 'hollow' hollow
echo 'One document.' > one.txt
prepare 'none of the 1 documents' one.txt
printf 'good text\n\nbad \xff text\n' > utf8.txt
prepare 'utf8.txt:3' utf8.txt
printf '{"text":"a"}\n{"text":\n' > bad.jsonl
prepare 'bad.jsonl:2' bad.jsonl
printf '{"text":"a"}\n{"words":"b"}\n' > key.jsonl
prepare 'key.jsonl:2' key.jsonl
printf '{"text":"a"}\n{"text":7}\n' > type.jsonl
prepare 'type.jsonl:2' type.jsonl
gzip -c corpus.txt | head -c 500 > cut.txt.gz
prepare 'cut.txt.gz' cut.txt.gz
expect 2 '60000' prepare corpus.txt --out x --vocabulary-size 60000
expect 2 '-5' prepare corpus.txt --out x --vocabulary-size -5
expect 2 '99999999999' prepare corpus.txt --out x --vocabulary-size 99999999999
prepare '0.9,0.1' corpus.txt --split 0.9,0.1
prepare 'nan' corpus.txt --split nan,0,1
prepare 'threads' corpus.txt --threads 0
prepare 'parchment' corpus.txt --format parchment
prepare 'empty.txt' corpus.txt --tokenizer empty.txt
before=$(contents data)
expect 2 'data' prepare corpus.txt --out data --vocabulary-size 301 --split 0.8,0.1,0.1
[ "$(contents data)" = "$before" ] || fail "a refused prepare changed the folder that was there"
{ make_corpus 300; printf 'a\0b c\n\n'; head -c 10000000 /dev/zero | tr '\0' 'x'; echo; } > odd.txt
works prepare odd.txt --out odd --vocabulary-size 300 --split 0.8,0.1,0.1
[ -e x ] && fail "a failed prepare left its output"
# Names of files are bytes.
latin=$'caf\xe9'
cp corpus.txt "$latin.txt"
works prepare "$latin.txt" --out latin --vocabulary-size 300 --split 0.8,0.1,0.1
cp -r data "$latin"
works train run.toml --out latin-run --set "data.folder=$latin"

# Configs.
train 2 "did you mean 'tokens'" x --set train.token=5
train 2 'train.tokens' x --set 'train.tokens="many"'
train 2 'model' x --set model=5
train 2 'model.width' x --set model.width=-8
train 2 'model.width' x --set model.width=99999999999
train 2 'heads' x --set model.heads=3
train 2 "did you mean 'rd_attnres'" x --set residual.variant=rd_attnre
train 2 'milestones' x --set train.milestones='[5,3]'
train 2 'learning_rate' x --set train.learning_rate=nan
train 2 'norm_eps' x --set model.norm_eps=inf
train 2 'rope_theta' x --set model.rope_theta=inf
train 2 'less than one batch' x --set train.batch_windows=100000 --set train.tokens=100000000
train 2 'vocabulary' x --set model.vocabulary=301
train 2 'nowhere' x --set data.folder=nowhere
printf 'a = = 1\n' > broken.toml
expect 2 'broken.toml, line 1' train broken.toml --out x
printf '\xff\xfe' > bytes.toml
expect 2 'bytes.toml' train bytes.toml --out x
# More than any machine has: refused quickly, and the folder is still free for a config that can run.
train 1 'memory' huge --set model.width=1048576
works train run.toml --out huge
train 2 'layers' x --set model.layers=1048576

# Damaged data.
shard=$(basename "$(ls data/train*.bin)")
damage_data() { rm -rf damaged && cp -r data damaged; }
damage_data && truncate -s -10 "damaged/$shard"
train 2 "$shard" x --set data.folder=damaged
damage_data && rm "damaged/$shard"
train 2 "$shard" x --set data.folder=damaged
damage_data && cp odd/tokenizer.model damaged/
train 2 'damaged/tokenizer.model' x --set data.folder=damaged
damage_data && truncate -s -10 damaged/manifest.json
train 2 'damaged/manifest.json' x --set data.folder=damaged
damage_data && printf '\x01\x00' | dd of="damaged/$shard" bs=1 seek=3000 conv=notrunc 2>/dev/null
expect 2 "damaged/$shard" data stats damaged --verify
mkdir bare && cp data/*.bin bare/
# Token 250 and above lie outside a vocabulary of 250.
train 2 'bare/' bare-run --set data.folder=bare --set model.vocabulary=250

# Checkpoints.
works train run.toml --out run
works evaluate run --data data
checkpoint=$(ls -d run/checkpoints/* | tail -n 1)
before=$(contents run)
train 2 'train.learning_rate' run --set train.learning_rate=0.5
[ "$(contents run)" = "$before" ] || fail "a refused config changed the run that was there"
cp -r "$checkpoint" cut && truncate -s -100 cut/model.safetensors
expect 2 'cut/model.safetensors' evaluate cut --data data
cp -r "$checkpoint" flipped && printf '\x55' | dd of=flipped/model.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
expect 2 'flipped/model.safetensors' evaluate flipped --data data
expect 2 'flipped/model.safetensors' diagnose flipped --data data
cp -r "$checkpoint" lost && rm lost/model.safetensors
expect 2 'lost' evaluate lost --data data
cp -r "$checkpoint" changed && sed -i 's/"hidden_size": 32/"hidden_size": 64/' changed/config.json
expect 2 'changed/config.json' evaluate changed --data data
works train run.toml --out other --set train.learning_rate=0.5
cp -r run mixed && rm -r mixed/checkpoints && cp -r other/checkpoints mixed/ && sed -i '/"event":"end"/d' mixed/metrics.jsonl
train 2 'another config' mixed
expect 2 'nosplit' evaluate run --data data --split nosplit
expect 2 'neither a checkpoint' evaluate data --data data
expect 2 'nowhere' evaluate run --data nowhere
works prepare corpus.txt --out data310 --vocabulary-size 310 --split 0.8,0.1,0.1
expect 2 'vocabulary' evaluate run --data data310
expect 2 '--batch-windows' evaluate run --data data --batch-windows 0

# A run's own files.
cp -r run notes && echo '{"event":5}' >> notes/metrics.jsonl
train 2 'notes/metrics.jsonl' notes
cp -r run blank && : > blank/run.json
train 2 'blank/run.json' blank

# Folders that cannot be written.
expect 1 'run.toml' train run.toml --out run.toml/x
expect 1 '/proc' train run.toml --out /proc/depthroute
expect 1 'run.toml' prepare corpus.txt --out run.toml/x --vocabulary-size 300 --split 0.8,0.1,0.1
if mkdir full && mount -t tmpfs -o size=200k tmpfs full 2>/dev/null; then
  expect 1 'no room for a checkpoint' train run.toml --out full/run
  dd if=/dev/zero of=full/fill bs=1k 2>/dev/null
  expect 1 'No space left' prepare corpus.txt --out full/data --vocabulary-size 300 --split 0.8,0.1,0.1
  [ -e full/data ] && fail "a failed prepare left its output"
  [ -n "$(find full -name '*.tmp-*')" ] && fail "temporary files are left on a full disk: $(find full -name '*.tmp-*')"
  umount full
else
  echo "skipped: no rights to mount a small file system"
fi
if [ -w /dev/full ]; then
  timeout 15 "$program" data stats data --json >/dev/full 2>err && fail "exit code 0 although standard output could not be written"
fi

# Two processes in one folder.
exec 9>run/lock
flock 9
train 1 "'run' is in use" run
exec 9>&-

# Studies.
{ printf 'name="s"\nvariants=["standard"]\nseeds=[1]\n'; sed '/^seed/d; /residual/,/variant/d' run.toml; } > study.toml
study() { expect 2 "$1" study study.toml --out "${@:2}"; }
study 'variants' x --set 'variants=["standard","standard"]'
study 'standart' x --set 'variants=["standart"]'
study 'seeds' x --set 'seeds=[1,1]'
study 'milestone' x --set decision.milestone=7
study '--run' x --run soon
study '--run 1' x --run 1
study 'no comparisons' x --aa
study "'mhar'" x --aa --variant mhar
# What never began is not frozen: after the mistake is put right, the same folder serves.
study 'vocabulary' study --set model.vocabulary=301
works study study.toml --out study
study 'train.learning_rate' study --set train.learning_rate=0.5
study 'vocabulary' study2 --set model.vocabulary=301
works study study.toml --out study3
sed -i 's/"standard"/"block_attnres"/' study.toml
study 'study3/study.json' study3
sed -i 's/"seeds": \[/"seeds": [9,/' study3/study.json
expect 2 'study3' report study3
expect 2 'study.json' report data
expect 2 'yaml' report study --format yaml
expect 2 'not an A/A study' report study --aa study
expect 2 'nowhere' report study --aa nowhere
expect 1 'run.toml' report study --out run.toml/report.html
finish
