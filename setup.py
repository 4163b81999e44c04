"""Builds the C++ extension ``torch_shark._C``; everything else is in pyproject.toml.

Build it against the torch that will run it::

    python setup.py build_ext --inplace     # incremental: objects stay in build/
    pip install --no-build-isolation -e .

Environment: ``MAX_JOBS`` (parallel compilations, default: the cores this process may use) and
``TORCH_SHARK_WERROR=1`` (warnings are errors, for CI).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Before torch is imported: a torch_shark that is installed but not built yet must not be loaded.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ.setdefault(
    "MAX_JOBS",
    str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
)

# The ninja of this Python, also where its environment is not activated: another version of ninja
# does not trust the log of this one, and would compile everything again.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, get_cxx_compiler, include_paths

ROOT = Path(__file__).resolve().parent
GENERATOR = "dispatch/ops/generate_structured_metas.py"
GENERATED = "build/generated"
OBJECTS = "build/objects"
HEADERS = "dispatch/precompiled.h"
PRECOMPILED = "build/precompiled.h"
TORCH_MINOR = ".".join(torch.__version__.split(".")[:2])


def written_sources() -> list[str]:
    """The C++ sources in the repository, relative to its root, tests left out."""
    found = [*Path("dispatch").rglob("*.cpp"), *Path("csrc_py").glob("*.cpp")]
    return sorted(str(path) for path in found if "tests" not in path.parts)


def generate_sources() -> list[str]:
    """Run the generator, which leaves a file that did not change as it was."""
    command = [sys.executable, GENERATOR, "--output", GENERATED]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return printed.splitlines()


class BuildSharkExtension(BuildExtension):
    """Generates sources, compiles with ninja, and records which torch the result is for."""

    def finalize_options(self) -> None:
        """Keep objects in one place, whoever builds."""
        super().finalize_options()
        # pip would compile an editable install in a folder that it then deletes.
        self.build_temp = OBJECTS

    def copy_extensions_to_source(self) -> None:
        """Put a new file in place: processes that run the old one keep it."""
        for extension in self.extensions:
            Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
        super().copy_extensions_to_source()

    def run(self) -> None:
        """Generate, compile, record."""
        for extension in self.extensions:
            extension.sources = written_sources() + generate_sources()
        super().run()
        package = ROOT / "torch_shark" if self.inplace else Path(self.build_lib) / "torch_shark"
        (package / "_build_info.py").write_text(
            '"""Written by setup.py: what the extension was built for."""\n\n'
            f'TORCH_MINOR = "{TORCH_MINOR}"\n'
        )

    def build_extensions(self) -> None:
        """Compile torch's headers once, for all files: that is half of the work."""
        for extension in self.extensions:
            flags = extension.extra_compile_args
            extension.extra_compile_args = flags + self.precompiled(flags)
        super().build_extensions()

    def precompiled(self, flags: list[str]) -> list[str]:
        """What makes g++ begin each file with the precompiled headers; nothing elsewhere."""
        compiler = get_cxx_compiler()
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
        if "Free Software Foundation" not in version:
            return []
        header = (ROOT / PRECOMPILED).with_suffix(".h.gch")
        # As torch calls it: g++ passes over headers that were compiled with other flags.
        options = [*self.compiler.compiler_so[1:], *flags, "-DTORCH_API_INCLUDE_EXTENSION_H"]
        command = [compiler, *options, "-x", "c++-header", HEADERS, "-o", str(header)]
        recipe = header.with_suffix(".recipe")
        wanted = "\n".join([version, *command, Path(HEADERS).read_text()])
        if not header.exists() or not recipe.exists() or recipe.read_text() != wanted:
            header.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(command, check=True)
            recipe.write_text(wanted)
        return ["-include", str(ROOT / PRECOMPILED), "-Winvalid-pch"]


def shark_extension() -> CppExtension:
    """``torch_shark._C``: warnings are for our own files, so torch's headers are system headers."""
    # The version is in the command line so that ninja rebuilds everything when torch changes.
    flags = ["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra"]
    flags.append(f"-DTORCH_SHARK_TORCH_VERSION={torch.__version__}")
    if os.environ.get("TORCH_SHARK_WERROR") == "1":
        flags.append("-Werror")
    for path in include_paths("cpu"):
        # Kineto's headers, for the profiler, include one another by their bare names.
        flags += ["-isystem", path, "-isystem", str(Path(path) / "kineto")]
    extension = CppExtension("torch_shark._C", written_sources(), extra_compile_args=flags)
    extension.include_dirs = [str(ROOT)]
    return extension


os.chdir(ROOT)
setup(ext_modules=[shark_extension()], cmdclass={"build_ext": BuildSharkExtension})
