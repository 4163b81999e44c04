"""What a user reads when the extension and torch do not fit, and what an import loads.

Each case is a process of its own; faults are made in a copy of the package, first in its path.
"""

import os
import pickle
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

import torch_shark
from torch_shark.errors import AbiMismatchError, ExecutableLoadError, UnknownTargetError

PACKAGE = Path(torch_shark.__file__).parent
# An editable install finds, in the checkout, what the copy lacks.
NO_EDITABLE = (
    "import sys\n"
    "sys.meta_path = [f for f in sys.meta_path if 'Editable' not in getattr(f, '__name__', '')]\n"
)
RUNNING_MINOR = ".".join(torch.__version__.split(".")[:2])


@pytest.fixture
def copy(tmp_path):
    """The package without its extension and without what the build recorded."""
    ignored = shutil.ignore_patterns("*.so", "_build_info.py", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "torch_shark", ignore=ignored)
    return tmp_path / "torch_shark"


def run(code: str, folder: Path | None = None, autoload: bool = True):
    """Run `code` in a new interpreter, `folder` first in its path."""
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if autoload else "0"}
    if folder is not None:
        environment["PYTHONPATH"] = str(folder)
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd="/", capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("code", "autoload"), [("import torch", True), ("import torch_shark", False)]
)
def test_extension_that_is_not_built_says_how_to_build(copy, code, autoload):
    result = run(NO_EDITABLE + code, copy.parent, autoload)
    assert result.returncode == 1
    assert "its C++ extension is not built for this Python: run `pip install" in result.stderr


@pytest.mark.parametrize(
    ("code", "autoload"), [("import torch", True), ("import torch_shark", False)]
)
def test_extension_for_another_torch_is_never_loaded(copy, code, autoload):
    (copy / "_build_info.py").write_text('TORCH_MINOR = "2.1"\n')
    (copy / "_C.py").write_text('raise ImportError("undefined symbol")\n')
    result = run(code, copy.parent, autoload)
    assert result.returncode == 1
    assert (
        f"AbiMismatchError: [shark] torch_shark was built for torch 2.1, but this is torch "
        f"{torch.__version__}: run `pip install" in result.stderr
    )
    assert "undefined symbol" not in result.stderr


def test_extension_that_does_not_load_says_why(copy):
    (copy / "_build_info.py").write_text(f'TORCH_MINOR = "{RUNNING_MINOR}"\n')
    (copy / "_C.py").write_text('raise ImportError("a reason")\n')
    result = run("import torch_shark", copy.parent, autoload=False)
    assert "ExtensionLoadError: [shark]" in result.stderr
    assert "(the linker said: a reason)" in result.stderr


@pytest.mark.parametrize(
    ("first", "autoload"),
    [("import torch", True), ("import torch_shark", True), ("import torch_shark", False)],
)
def test_import_registers_the_device_and_stays_light(first, autoload):
    result = run(
        f"{first}\nimport sys, torch\nprint(torch.device('shark').type)\n"
        "heavy = {'iree', 'torch_mlir', 'torch._dynamo'}\nprint(sorted(heavy & set(sys.modules)))",
        autoload=autoload,
    )
    assert result.stdout == "shark\n[]\n", result.stderr


def test_cache_is_installed_as_a_part_of_the_package():
    result = run("import torch_shark.cache; print(torch_shark.cache.__name__)")
    assert result.stdout == "torch_shark.cache\n", result.stderr


@pytest.mark.parametrize(
    "error",
    [
        AbiMismatchError("2.12", "2.13.0"),
        UnknownTargetError("config.target", "tpu", ("cpu",)),
        ExecutableLoadError("cpu", "region.vmfb", "bad magic"),
    ],
)
def test_exceptions_survive_the_way_between_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_the_version_is_that_of_the_package() -> None:
    assert torch_shark.__version__ == version("torch_shark")
