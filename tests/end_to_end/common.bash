# Shared by the end-to-end tests: a folder of its own, a small prepared corpus, a small run.
set -u
program=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
finish() { [ "$failures" = 0 ] && echo "all passed" || { echo "$failures failed"; exit 1; }; }

# Paragraphs of made-up words: the same text each time.
make_corpus() {
  awk -v paragraphs="$1" 'BEGIN {
    srand(7); split("ba ke lo mi nu sta ther ing pro con del ax or u", s, " ")
    for (p = 0; p < paragraphs; ++p) {
      line = "Entry " p ","
      for (w = 0; w < 24; ++w) { line = line " "; for (k = 0; k < 1 + int(rand() * 3); ++k) line = line s[1 + int(rand() * rand() * 14)] }
      print line ".\n"
    } }'
}

prepare_data() {
  make_corpus 400 > corpus.txt
  "$program" prepare corpus.txt --out data --vocabulary-size 300 --split 0.8,0.1,0.1 >/dev/null 2>&1 || { echo "prepare failed"; exit 1; }
  cat > run.toml <<'TOML'
seed = 1
[model]
preset = "tiny"
layers = 2
vocabulary = 300
[residual]
variant = "rd_attnres"
[data]
folder = "data"
[train]
tokens = 2560
batch_windows = 4
learning_rate = 1e-2
milestones = [1280, 2560]
checkpoint_interval = 2
log_interval = 1
threads = 1
TOML
}

# A study of six short runs on that data.
write_study() {
  cat > study.toml <<'TOML'
name = "end-to-end"
variants = ["standard", "block_attnres", "rd_attnres"]
seeds = [1, 2]
[[comparisons]]
variant = "rd_attnres"
baseline = "block_attnres"
[model]
preset = "tiny"
layers = 2
vocabulary = 300
[data]
folder = "data"
[train]
tokens = 1280
batch_windows = 4
learning_rate = 1e-2
milestones = [640, 1280]
checkpoint_interval = 3
log_interval = 1
threads = 1
TOML
}

# launch COUNT FOLDER SETTING...: COUNT processes train run.toml together in this machine, as torchrun starts them. Rank r's output is in out.r and
# err.r, its process in pids[r].
launch() {
  local count=$1 folder=$2 rank
  shift 2
  port=$((20000 + RANDOM % 10000))
  pids=()
  for ((rank = 0; rank < count; ++rank)); do
    RANK=$rank WORLD_SIZE=$count MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      "$program" train run.toml --out "$folder" "$@" > out.$rank 2> err.$rank &
    pids+=($!)
  done
}

# Prints the exit codes of what launch started, in the order of ranks. Not for $(...): those are not the children of a subshell.
codes() {
  local pid
  for pid in "${pids[@]}"; do wait "$pid"; printf '%s ' $?; done
}
