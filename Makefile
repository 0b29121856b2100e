# The front door: installs what is missing, builds, serves or tests. The build itself is CMake's (CMakePresets.json).
#
#   make serve [MODEL=file.gguf]   make test   make build   make bench   make lint   make fuzz
#   make install PREFIX=/usr/local   make deb   make clean
PREFIX ?= /usr/local
PRESET ?= release
MODELS ?= $(if $(DEEPINFER_TEST_MODELS),$(DEEPINFER_TEST_MODELS),$(HOME)/.cache/deepinfer/models)
BUILD := build/$(PRESET)
DEEPINFER := build/release/deepinfer

.PHONY: serve test build tests bench lint fuzz install deb clean dependencies
.NOTPARALLEL:

serve: dependencies
	@$(MAKE) --no-print-directory build/release/build.ninja PRESET=release
	@cmake --build build/release --target deepinfer | tail -n 1
	@exec $(DEEPINFER) serve $(MODEL)

build: dependencies
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	cmake --build $(BUILD)

# A model that cannot be fetched costs its tests, not the others: they skip and say why.
test: build
	@tools/install-dependencies test
	@tools/fetch_models --if-absent $(MODELS) smollm2 qwen2.5-coder r1-distill-vocab || echo "test: no real models; their tests are skipped"
	@tools/run_tests DEEPINFER_TEST_MODELS=$(MODELS) $(BUILD)

bench: build
	$(DEEPINFER) bench $(MODEL)

# All sources but the tests through clang-tidy, whose checks (.clang-tidy) include clang's own warnings, thread safety among them: one
# pass of the front end a file and no object code. Tests are compiled by g++ alone.
lint:
	@tools/install-dependencies build lint
	@$(MAKE) --no-print-directory build/lint/build.ninja PRESET=lint
	@cmake --build build/lint --target di_git_description | tail -n 1
	@run-clang-tidy-19 -p build/lint -quiet '$(CURDIR)/(build/lint/)?(src|tools|bench|fuzz)/(?!.*_test\.(cc$$|dir/))' >build/lint/clang-tidy.log 2>&1 || \
		{ grep -vE '^\[|warnings? generated|^$$' build/lint/clang-tidy.log; exit 1; }
	@head -n 1 build/lint/clang-tidy.log
	tools/tidy.py

# Builds the libFuzzer targets; run one as build/fuzz/fuzz/NAME fuzz/corpus/NAME.
fuzz:
	@tools/install-dependencies build lint
	@$(MAKE) --no-print-directory build/fuzz/build.ninja PRESET=fuzz
	cmake --build build/fuzz

install: build
	cmake --install $(BUILD) --prefix $(PREFIX)

deb: build
	cd $(BUILD) && cpack -G DEB

clean:
	rm -rf build

dependencies:
	@tools/install-dependencies build

$(BUILD)/build.ninja:
	cmake --preset $(PRESET)
