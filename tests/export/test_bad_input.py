"""What is not right is told before anything runs, and leaves nothing behind."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch

from torch_shark.export.errors import BundleError, ExportError, NoDeviceError


@pytest.fixture
def copy(bundle, tmp_path) -> Path:
    """A bundle of one's own, to be damaged."""
    shutil.copytree(bundle, tmp_path / "copy")
    return tmp_path / "copy"


def edit(folder: Path, **changes: object) -> None:
    file = folder / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def error_of(folder: Path, error: type[Exception] = BundleError) -> str:
    with pytest.raises(error) as caught:
        torch.shark.load(folder)
    assert type(caught.value) is error
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))
    text = str(caught.value)
    assert text.startswith("[shark] ")
    return text.removeprefix("[shark] ").replace(str(folder), "PATH")


# Bundles


def test_a_folder_that_is_none(tmp_path):
    assert error_of(tmp_path / "none").startswith(
        "PATH can't be loaded: expected a folder with manifest.json, got [Errno 2]"
    )


@pytest.mark.parametrize("name", ["cpu-x86-64-v3.vmfb", "parameters.irpa"])
def test_a_missing_file(copy, name):
    (copy / name).unlink()
    assert error_of(copy) == f"PATH/{name} can't be loaded: expected a file, got none"


@pytest.mark.parametrize("name", ["cpu-x86-64-v3.vmfb", "parameters.irpa"])
def test_a_truncated_file(copy, name):
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[:-1])
    assert error_of(copy) == (
        f"PATH/{name} can't be loaded: expected {len(data)} bytes, got {len(data) - 1}"
    )


@pytest.mark.parametrize("name", ["cpu-x86-64-v3.vmfb", "parameters.irpa"])
def test_a_changed_byte(copy, name):
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    text = error_of(copy)
    assert re.fullmatch(f"PATH/{name} can't be .* the SHA-256 [0-9a-f]{{64}}, got .*", text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "JSONDecodeError"),
        ("", "JSONDecodeError"),
        ("[]", "TypeError"),
        ("{}", "KeyError: 'format'"),
        ('{"format": 1}', "KeyError: 'inputs'"),
        ('{"format": "x"}', "TypeError"),
        ("\x00\xff", "Error"),
    ],
)
def test_a_manifest_that_is_none(copy, text, said):
    (copy / "manifest.json").write_text(text)
    found = error_of(copy)
    assert found.startswith("PATH/manifest.json can't be loaded: expected a bundle's manifest, got")
    assert said in found


def test_a_manifest_with_other_leaves_than_its_structure(copy):
    fields = json.loads((copy / "manifest.json").read_text())
    fields["inputs"]["leaves"] *= 2
    edit(copy, inputs=fields["inputs"])
    assert "got ValueError: expected 1 leaves, got 2" in error_of(copy)


def test_a_dtype_that_is_none(copy):
    fields = json.loads((copy / "manifest.json").read_text())
    fields["outputs"]["leaves"][0]["dtype"] = "nn"
    edit(copy, outputs=fields["outputs"])
    assert "got ValueError: expected a dtype, got 'nn'" in error_of(copy)


def test_a_class_that_is_not_registered(copy):
    fields = json.loads((copy / "manifest.json").read_text())
    structure = fields["outputs"]["structure"].replace('"type": null', '"type": "a.Missing"')
    edit(copy, outputs=fields["outputs"] | {"structure": structure})
    assert "expected its classes to be imported before, got" in error_of(copy)
    assert "a.Missing" in error_of(copy)


def test_a_newer_format(copy):
    edit(copy, format=2)
    assert error_of(copy) == (
        "PATH/manifest.json can't be loaded: expected a format of at most 1, got 2: "
        "use a newer torch_shark"
    )


def test_files_are_looked_for_in_the_bundle_alone(copy):
    (copy.parent / "outside.irpa").write_bytes((copy / "parameters.irpa").read_bytes())
    files = json.loads((copy / "manifest.json").read_text())["files"]
    files["../outside.irpa"] = files["parameters.irpa"]
    edit(copy, parameters="../outside.irpa", files=files)
    assert "expected size and checksum of '../outside.irpa', got none" in error_of(copy)


def test_a_target_that_the_bundle_lacks(bundle):
    with pytest.raises(BundleError, match=r"expected a target among: cpu.*; got 'cuda:sm_80'"):
        torch.shark.load(bundle, target="cuda:sm_80")


def test_a_machine_without_a_device(copy):
    (target,) = json.loads((copy / "manifest.json").read_text())["targets"]
    others = [target | {"name": name, "driver": name} for name in ("hip", "abacus")]
    edit(copy, targets=others)
    text = error_of(copy, NoDeviceError)
    assert text.startswith("expected a device for one of the targets in PATH, got none.\nhip: ")
    assert "\nabacus: " in text


# Arguments


def refused(program, error, *args, **kwargs) -> str:
    with pytest.raises(error) as caught:
        program(*args, **kwargs)
    assert type(caught.value) is error
    return str(caught.value)


def test_arguments_of_another_kind(bundle):
    program = torch.shark.load(bundle)
    x = torch.randn(3, 8)
    assert refused(program, ValueError, torch.randn(3, 9)) == (
        "[shark] expected x to have shape [3, 8], got [3, 9]"
    )
    assert refused(program, ValueError, torch.randn(24)) == (
        "[shark] expected x to have shape [3, 8], got [24]"
    )
    assert refused(program, TypeError, x.double()) == (
        "[shark] expected x to have dtype float32, got float64"
    )
    assert refused(program, TypeError, 1.5) == (
        "[shark] expected x to be a tensor float32[3, 8], got 1.5"
    )
    assert refused(program, TypeError, x, x) == (
        "[shark] expected arguments as in the export (x: float32[3, 8]), got 2 positional, "
        "[] by name, 2 leaves in all"
    )
    assert refused(program, TypeError).endswith("got 0 positional, [] by name, 0 leaves in all")
    assert refused(program, TypeError, [x]).startswith("[shark] expected arguments as in the ex")
    assert refused(program, TypeError, x=x).startswith("[shark] expected arguments as in the ex")
    assert refused(program, ValueError, x.to("meta")) == (
        "[shark] expected all tensors on the CPU or all on shark, got meta"
    )
    assert program(x).shape == (3, 4)


class Fixed(torch.nn.Module):
    def forward(self, x, y, times):
        return (x + y) * times


def test_fixed_values_and_devices_that_differ(tmp_path):
    x = torch.ones(2)
    torch.shark.export(Fixed(), (x, x, 3), tmp_path / "b")
    program = torch.shark.load(tmp_path / "b")
    assert refused(program, ValueError, x, x, 4) == (
        "[shark] expected times to be 3, as it was exported, got 4"
    )
    assert refused(program, ValueError, x, x, 3.0).endswith("got 3.0")
    assert refused(program, ValueError, x, x.to("shark"), 3).endswith("got cpu, shark:0")
    assert torch.equal(program(x, x, 3), Fixed()(x, x, 3))


def test_a_closed_program(bundle):
    program = torch.shark.load(bundle)
    program.close()
    program.close()
    with pytest.raises(RuntimeError, match="The program is closed"):
        program(torch.randn(3, 8))


# Models


class Deciding(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # the line that the error names
            return x
        return -x


class Dropping(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.5, training=True)


class WritingInput(torch.nn.Module):
    def forward(self, x):
        return x.add_(1)


class Fourier(torch.nn.Module):
    def forward(self, x):
        return torch.fft.fft(x)


class Failing(torch.nn.Module):
    def forward(self, x):
        raise KeyError("an error of one's own")


class Decomposing(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.svdvals(x.reshape(2, 2))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Decomposing, r"IREE's compiler failed for cpu:x86-64-v3.\n.*bad_input.py:\d+:\d+: .*_svd"),
        (Deciding, r"at \S+test_bad_input.py:\d+, in forward\n +if x.sum\(\) > 0:.*\nGuardOnData"),
        (Failing, r"at \S+test_bad_input.py:\d+, in forward\n +raise KeyError\(.*an error of one"),
        (
            Dropping,
            r"expected no random numbers, got \S+; a dropout .*\n.*bad_input.py.*dropout",
        ),
        (
            WritingInput,
            r"only buffers to be written in place, got a user input mutation: x",
        ),
        (
            Fourier,
            r"expected dtypes that .* got torch.complex64 by aten.fft.*\n.*bad_input.py",
        ),
    ],
)
def test_models_that_cannot_be_exported(tmp_path, model, said):
    with pytest.raises(ExportError) as caught:
        torch.shark.export(model(), (torch.randn(4),), tmp_path / "b")
    assert str(caught.value).startswith(f"[shark] {model.__name__} can't be exported: ")
    assert re.search(said, str(caught.value), re.DOTALL), str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("targets", "error", "said"),
    [
        (["tpu"], ValueError, "expected a target among: .*; got 'tpu'"),
        ("cpu", TypeError, "expected a list of targets, got 'cpu'"),
        ([], TypeError, "expected a list of targets, got \\[\\]"),
    ],
)
def test_targets_that_are_none(small, tmp_path, targets, error, said):
    with pytest.raises(error, match=said):
        torch.shark.export(small, (torch.randn(3, 8),), tmp_path / "b", targets=targets)
    assert list(tmp_path.iterdir()) == []


# Writing


def test_a_failed_export_leaves_the_bundle_that_was_there(small, copy):
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    with pytest.raises(ExportError):
        torch.shark.export(Deciding(), (torch.randn(4),), copy)
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before
    assert [folder.name for folder in copy.parent.iterdir()] == ["copy"]


def test_a_bundle_is_replaced_as_a_whole(small, copy):
    loaded = torch.shark.load(copy)
    torch.shark.export(Fixed(), (torch.ones(2), torch.ones(2), 3), copy)
    assert sorted(file.name for file in copy.iterdir()) == ["cpu-x86-64-v3.vmfb", "manifest.json"]
    assert torch.equal(
        torch.shark.load(copy)(torch.ones(2), torch.ones(2), 3), torch.full((2,), 6.0)
    )
    x = torch.randn(3, 8)
    torch.testing.assert_close(loaded(x), small(x).detach())  # what was loaded goes on
    assert [folder.name for folder in copy.parent.iterdir()] == ["copy"]


def test_what_is_no_bundle_is_not_replaced(small, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "text").write_text("kept")
    with pytest.raises(FileExistsError, match="to be free or a bundle, got something else"):
        torch.shark.export(small, (torch.randn(3, 8),), tmp_path / "notes")
    assert (tmp_path / "notes" / "text").read_text() == "kept"
    assert [folder.name for folder in tmp_path.iterdir()] == ["notes"]


def test_a_bundle_in_folders_that_are_not_there_yet(tmp_path):
    torch.shark.export(Fixed(), (torch.ones(2), torch.ones(2), 3), tmp_path / "a" / "b")
    assert sorted(f.name for f in (tmp_path / "a" / "b").iterdir()) == [
        "cpu-x86-64-v3.vmfb",
        "manifest.json",
    ]
