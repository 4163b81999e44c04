"""What the compiler says, and what others print while it runs."""

from __future__ import annotations

import os
from typing import Any

import pytest

from torch_shark.lowering import compile
from torch_shark.targets import get_target


def test_an_error_carries_the_diagnostics() -> None:
    with pytest.raises(compile.CompileError, match="expected operation name"):
        compile.compile_module(b"module { 1 }", get_target("cpu"))


def test_what_others_print_meanwhile_is_passed_on(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrap_buffer = compile.Source.wrap_buffer

    def print_and_wrap(*args: Any) -> Any:
        os.write(2, b"said by another thread\n")
        return wrap_buffer(*args)

    monkeypatch.setattr(compile.Source, "wrap_buffer", print_and_wrap)
    compile.compile_module(b"module { func.func @main() { return } }", get_target("cpu"))
    assert capfd.readouterr().err == "said by another thread\n"
