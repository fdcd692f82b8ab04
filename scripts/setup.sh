#!/usr/bin/env bash
# Installs what is missing for a build on Debian or Ubuntu: apt packages, and Arrow and LibTorch from PyPI's wheels in a private
# virtual environment (.venv). Does nothing where everything is there. TORCH_DIR names a PyTorch to use instead of torch's wheel.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build pkg-config libhwy-dev libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libfmt-dev libxxhash-dev
          libsentencepiece-dev libgloo-dev zlib1g-dev libzstd-dev libgtest-dev dict-gcide python3-venv)

fail() { echo "depthroute: $*" >&2; exit 2; }

missing=()
if command -v dpkg-query >/dev/null; then
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
else
  fail "this is not Debian or Ubuntu; install the counterparts of these packages and use cmake --preset release: ${packages[*]}"
fi

if [ ${#missing[@]} -gt 0 ]; then
  run=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "packages are missing, and installing them needs root: apt-get install ${missing[*]}"
    run=(sudo)
  fi
  echo "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  { "${run[@]}" apt-get update && "${run[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
    { tail -n 5 "$log" >&2; fail "apt-get could not install: ${missing[*]}"; }
  rm -f "$log"
fi

if [ -n "${TORCH_DIR:-}" ]; then
  [ -e "$TORCH_DIR/lib/libtorch_cpu.so" ] || fail "TORCH_DIR='$TORCH_DIR' holds no lib/libtorch_cpu.so"
fi

# The wheel of pyarrow has Arrow's C++ libraries and headers. Of torch a build for the CPU needs the wheel and two small libraries it
# links to, not the gigabytes of its GPU dependencies.
wheels=(pyarrow==26.0.1)
[ -n "${TORCH_DIR:-}" ] || wheels+=(torch==2.15.0 nvidia-cuda-cupti nvidia-cuda-runtime)
# The stamp is written last, so that an installation that was cut short is done again.
if [ "$(cat .venv/ready 2>/dev/null)" != "${wheels[*]}" ]; then
  echo "installing ${wheels[*]} into .venv"
  rm -rf .venv
  python3 -m venv .venv || fail "python3 -m venv failed: is the package python3-venv installed?"
  .venv/bin/pip install --quiet --no-deps "${wheels[@]}" ||
    fail "pip could not install ${wheels[*]}: is PyPI reachable?"
  echo "${wheels[*]}" > .venv/ready
fi
