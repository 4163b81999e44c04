# From a clean clone, `make demo` and `make test` set up all they need in .venv.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check \
       -c requirements/constraints.txt "$(TORCH)"

# CI turns the compiler's warnings into errors; a user's other compiler may warn.
export TORCH_SHARK_WERROR := $(if $(CI),1,0)

# The name holds the version: `make TORCH=torch==2.12.1 test` installs that one, and only once.
TORCH_STAMP := $(VENV)/.stamp-torch-$(subst =,,$(TORCH))
BUILD_STAMP := $(VENV)/.stamp-build
INSTALL_STAMP := $(VENV)/.stamp-install

CPP_SOURCES := $(shell find dispatch csrc_py -name '*.cpp' -o -name '*.h')
CPP_TESTS := $(wildcard tests/cpp/*)
BUILD_INPUTS := $(CPP_SOURCES) setup.py dispatch/ops/generate_structured_metas.py

.PHONY: venv build demo test test-cpp test-cuda test-full bench bench-cuda bench-dispatch lint format knobs operators clean

venv: $(INSTALL_STAMP)

build: $(BUILD_STAMP)

demo: $(INSTALL_STAMP)
	TORCH_SHARK_POLICY=iree $(BIN)/python examples/embed_sentences.py

# A process to each core, so no more threads.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

test: $(INSTALL_STAMP) test-cpp
	$(PYTEST) -m "not slow"

test-full: $(INSTALL_STAMP) test-cpp
	$(PYTEST)

# make test-cpp SANITIZE=address,undefined  or  SANITIZE=thread
SANITIZE ?=
CPP_HEADERS := $(filter %.h,$(CPP_SOURCES))
TEST_BUILD := build/tests$(if $(SANITIZE),-$(SANITIZE))
TORCH_DIR = $(shell $(BIN)/python -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])")
CXX_FLAGS = -std=c++20 -O1 -g1 -Wall -Wextra -fvisibility=hidden -I. -isystem $(TORCH_DIR)/include \
	-isystem $(TORCH_DIR)/include/torch/csrc/api/include -isystem $(TORCH_DIR)/include/kineto \
	$(if $(SANITIZE),-fsanitize=$(SANITIZE))
CXX_TEST = $(CXX) $(CXX_FLAGS) $(filter %.cpp %.o,$^) -o $@ \
	-L$(TORCH_DIR)/lib -ltorch_cpu -lc10 -Wl,-rpath,$(TORCH_DIR)/lib -pthread

test-cpp: $(addprefix $(TEST_BUILD)/,test_choice test_cut test_pool test_threads)
	$(TEST_BUILD)/test_choice
	$(TEST_BUILD)/test_cut
	$(TEST_BUILD)/test_pool
	OMP_NUM_THREADS=1 $(TEST_BUILD)/test_threads

$(TEST_BUILD)/test_choice: tests/cpp/test_choice.cpp tests/cpp/check.h \
	$(wildcard dispatch/exec/choice.*)
$(TEST_BUILD)/test_cut: tests/cpp/test_cut.cpp tests/cpp/check.h dispatch/window/cut.h
$(TEST_BUILD)/test_pool: tests/cpp/test_pool.cpp tests/cpp/check.h \
	$(wildcard dispatch/device/pool.*) $(wildcard dispatch/device/native_memory.*) \
	$(wildcard dispatch/device/imports.*) $(wildcard dispatch/device/process.*)
$(TEST_BUILD)/test_%: $(TORCH_STAMP)
	mkdir -p $(@D)
	$(CXX_TEST)

# The whole core: the extension's own objects, or compiled anew for a sanitizer. PyTorch's structured
# metas hold no state: they are as the build left them.
CORE_SOURCES := $(shell find dispatch -name '*.cpp')
CORE_OBJECTS := $(CORE_SOURCES:%.cpp=$(if $(SANITIZE),$(TEST_BUILD),build/objects)/%.o)
METAS = $(wildcard build/objects/build/generated/*.o)

$(TEST_BUILD)/test_threads: $(TEST_BUILD)/tests/cpp/test_threads.o $(CORE_OBJECTS) | $(BUILD_STAMP)
	$(CXX_TEST) $(METAS)
$(TEST_BUILD)/%.o: %.cpp $(CPP_HEADERS) | $(TORCH_STAMP)
	mkdir -p $(@D)
	$(CXX) $(CXX_FLAGS) -c $< -o $@
ifeq ($(SANITIZE),)
$(CORE_OBJECTS): $(BUILD_STAMP) ;
endif

# OpenMP threads that spin would take the cores from the executor and from IREE's workers.
bench: bench-dispatch
	OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/memory.py
	$(BIN)/python -m torch_shark.bench --json build/bench.json --docs docs/performance.md \
	    --chart docs/performance.png

# Where there is a CUDA device: build with `make TORCH=...` for the PyTorch that has CUDA.
test-cuda: $(INSTALL_STAMP)
	$(BIN)/python -m pytest tests/cuda

bench-cuda: $(INSTALL_STAMP)
	$(BIN)/python benchmarks/native_cuda.py

bench-dispatch: $(INSTALL_STAMP)
	OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/dispatch.py

lint: $(INSTALL_STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP_SOURCES) $(CPP_TESTS)

format: $(INSTALL_STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CPP_SOURCES) $(CPP_TESTS)

knobs: $(INSTALL_STAMP)
	@$(BIN)/python -m torch_shark

# Takes an hour or two: every operator is compiled in every dtype.
operators: $(INSTALL_STAMP)
	PYTHONPATH=. $(BIN)/python tests/ops/survey.py > build/survey.jsonl

clean:
	rm -rf build dist *.egg-info torch_shark/*.so torch_shark/_build_info.py $(VENV)/.stamp-*

$(TORCH_STAMP): requirements/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) setuptools ninja pyyaml numpy
	rm -f $(VENV)/.stamp-torch-*
	touch $@

$(BUILD_STAMP): $(TORCH_STAMP) $(BUILD_INPUTS)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

# Once the extension is there, so that its compilation shows and pip finds nothing left to compile.
# A change in C++ needs no second install: the stamp of the build only has to exist.
$(INSTALL_STAMP): pyproject.toml requirements/constraints.txt $(TORCH_STAMP) | $(BUILD_STAMP)
	$(PIP) --no-build-isolation -e ".[test,lint]"
	touch $@
