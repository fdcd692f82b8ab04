# The commands of this project; CMake does the work.
#   make quickstart   install what is missing, build, run the small study on real text, write its report
#   make test         install what is missing, build, run all tests
#   make published-study   train the study of docs/results again (75 minutes of two cores)
#   make bench        time everything against limits and peers, write docs/benchmarks.md (installs a full PyTorch)
# TORCH_DIR=/path/to/torch uses a PyTorch or LibTorch that is there already.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
QUICKSTART ?= runs/quickstart
GCIDE := /usr/share/dictd/gcide.dict.dz

GCIDE_DATA := data/gcide/manifest.json

.PHONY: quickstart published-study test bench build program configure setup sanitize sanitize-threads format lint clean

quickstart: $(GCIDE_DATA)
	build/depthroute study configs/study/quickstart.toml --out $(QUICKSTART) --jobs $(JOBS)

published-study: $(GCIDE_DATA)
	build/depthroute study configs/study/gcide.toml --out runs/gcide --jobs $(JOBS)

$(GCIDE_DATA): program
	@test -e $(GCIDE) || { echo "depthroute: $(GCIDE) is missing: install Debian's package dict-gcide" >&2; exit 2; }
	@test -e $@ || build/depthroute prepare $(GCIDE) --format gcide --out $(@D) --vocabulary-size 2048 --split 0.99,0.005,0.005 --threads $(JOBS)

program: configure
	cmake --build --preset release -j $(JOBS) --target depthroute

test: build
	ctest --test-dir build --output-on-failure --no-tests=error -j $(JOBS)

bench: build .venv-interop/ready
	.venv-interop/bin/python bench/run.py

# The full wheel of PyTorch: peers and torch.compile need it.
.venv-interop/ready: bench/peers/requirements.txt tests/interop/requirements.txt
	python3 -m venv .venv-interop
	.venv-interop/bin/pip install -q -r bench/peers/requirements.txt
	touch $@

configure: setup
	@cmake --preset release $(if $(TORCH_DIR),-DTORCH_DIR=$(TORCH_DIR)) > build.log 2>&1 || { cat build.log; exit 1; }

build: configure
	cmake --build --preset release -j $(JOBS)

setup:
	@TORCH_DIR="$(TORCH_DIR)" scripts/setup.sh

# All tests under AddressSanitizer and UndefinedBehaviorSanitizer.
sanitize: setup
	cmake --preset sanitize $(if $(TORCH_DIR),-DTORCH_DIR=$(TORCH_DIR))
	cmake --build --preset sanitize -j $(JOBS)
	ctest --preset sanitize -j $(JOBS)

# The readers, the tokenizer's threads, the writers and the progress line under ThreadSanitizer. LibTorch and OpenMP, which it
# does not know, are not in these tests.
sanitize-threads: setup
	cmake --preset sanitize-threads $(if $(TORCH_DIR),-DTORCH_DIR=$(TORCH_DIR))
	cmake --build --preset sanitize-threads -j $(JOBS)
	build-sanitize-threads/src/io/io_test
	TSAN_OPTIONS="suppressions=$(CURDIR)/tests/thread_sanitizer.txt" build-sanitize-threads/src/data/data_test

format:
	git ls-files '*.cc' '*.h' | xargs clang-format -i

lint: build
	git ls-files '*.cc' '*.h' | xargs clang-format --dry-run --Werror
	git ls-files 'src/*.cc' | grep -v _test.cc | xargs -P $(JOBS) -n 4 clang-tidy -p build --quiet

clean:
	rm -rf build build-debug build-sanitize build-sanitize-threads build-fuzz build.log
