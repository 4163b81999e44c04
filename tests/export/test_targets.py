"""Other targets, compiled without their hardware: what executables hold, and who loads them."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch
from torch import nn

from torch_shark.export.errors import ExportError, NoDeviceError
from torch_shark.targets import shipping_target

X86_64, AARCH64, AMDGPU = 62, 183, 224  # machines of ELF files


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return nn.Sequential(
        *[nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5), nn.Softmax(-1)]
    ).eval()


IMAGES = torch.randn(2, 3, 8, 8)


def elf_machine(vmfb: bytes) -> int:
    start = vmfb.index(b"\x7fELF")
    return int.from_bytes(vmfb[start + 18 : start + 20], "little")


def compiled(network, target, folder):
    """The manifest's entry of a target, and the executable."""
    torch.shark.export(network, (IMAGES,), folder, targets=[target])
    (entry,) = json.loads((folder / "manifest.json").read_text())["targets"]
    return entry, (folder / entry["file"]).read_bytes()


@pytest.mark.parametrize(
    ("target", "named", "machine"),
    [
        ("cpu", "cpu:x86-64-v3", X86_64),
        ("cpu:host", "cpu:host", X86_64),
        ("cpu:x86-64-v2", "cpu:x86-64-v2", X86_64),
        ("cpu:x86-64-v4", "cpu:x86-64-v4", X86_64),
        ("cpu:aarch64", "cpu:aarch64", AARCH64),
    ],
)
def test_cpus(network, tmp_path, target, named, machine):
    entry, vmfb = compiled(network, target, tmp_path / "b")
    assert (entry["name"], entry["driver"]) == (named, "local-task")
    assert entry["cpu_features"]
    assert elf_machine(vmfb) == machine


@pytest.mark.parametrize(("target", "sm"), [("cuda", "sm_80"), ("cuda:sm_89", "sm_89")])
def test_cuda_is_ptx(network, tmp_path, target, sm):
    entry, vmfb = compiled(network, target, tmp_path / "b")
    assert (entry["name"], entry["driver"]) == (f"cuda:{sm}", "cuda")
    assert f"--iree-cuda-target={sm}" in entry["flags"]
    assert set(re.findall(rb"\.target (sm_\d+)", vmfb)) == {sm.encode()}
    assert len(re.findall(rb"\.entry main", vmfb)) >= 3  # convolution, product, softmax
    assert vmfb.count(b"fma.rn.f32") > 0


class Block(nn.Module):
    """What a transformer has: norms, attention with a mask, a network."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(64), nn.Linear(64, 192)
        self.network = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, x, mask):
        heads = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask[:, None, None])
        x = x + seen.transpose(1, 2).flatten(2)
        return x + self.network(self.norm(x))


def test_transformers_compile_for_gpus(tmp_path):
    torch.manual_seed(0)
    block, x, mask = Block().eval(), torch.randn(2, 32, 64), torch.ones(2, 32, dtype=torch.bool)
    mask[0] = False
    mask[1, 20:] = False
    targets = ["cuda", "rocm", "metal", "cpu:host"]
    torch.shark.export(block, (x, mask), tmp_path / "b", targets=targets)
    program = torch.shark.load(tmp_path / "b", target="cpu:host")
    with torch.no_grad():
        torch.testing.assert_close(program(x, mask), block(x, mask))


@pytest.mark.parametrize(
    ("target", "architecture"),
    [
        ("vulkan", "vp_android_baseline_2022"),
        ("vulkan:rdna3", "rdna3"),
        ("vulkan:ampere", "ampere"),
    ],
)
def test_vulkan_is_spirv(network, tmp_path, target, architecture):
    entry, vmfb = compiled(network, target, tmp_path / "b")
    assert (entry["name"], entry["driver"]) == (f"vulkan:{architecture}", "vulkan")
    start = vmfb.index(b"\x03\x02\x23\x07")
    version = int.from_bytes(vmfb[start + 4 : start + 8], "little")
    assert 0x10000 <= version <= 0x10600
    assert vmfb.count(b"GLSL.std.450") > 0


@pytest.mark.parametrize("platform", ["macos", "ios"])
def test_metal_is_its_source(network, tmp_path, platform):
    entry, vmfb = compiled(network, f"metal:{platform}", tmp_path / "b")
    assert (entry["name"], entry["driver"]) == (f"metal:{platform}", "metal")
    assert vmfb.count(b"#include <metal_stdlib>") >= 3
    assert vmfb.count(b"kernel void main") >= 3


@pytest.mark.parametrize(
    ("target", "gfx", "machine"),
    [("rocm", "gfx942", 0x4C), ("rocm:gfx1100", "gfx1100", 0x41)],
)
def test_rocm_is_a_code_object(network, tmp_path, target, gfx, machine):
    entry, vmfb = compiled(network, target, tmp_path / "b")
    assert (entry["name"], entry["driver"]) == (f"rocm:{gfx}", "hip")
    assert elf_machine(vmfb) == AMDGPU
    flags = vmfb.index(b"\x7fELF") + 48
    assert vmfb[flags] == machine  # LLVM's EF_AMDGPU_MACH
    assert f"-amdhsa-unknown-{gfx}".encode() in vmfb


def test_one_bundle_for_several_targets(network, tmp_path):
    """The parameters are there once; the first target that can run does."""
    targets = ["metal", "cpu", "cuda", "cpu:x86-64-v3"]
    torch.shark.export(network, (IMAGES,), tmp_path / "b", targets=targets)
    assert sorted(file.name for file in (tmp_path / "b").iterdir()) == [
        "cpu-x86-64-v3.vmfb",
        "cuda-sm_80.vmfb",
        "manifest.json",
        "metal-macos.vmfb",
        "parameters.irpa",
    ]
    program = torch.shark.load(tmp_path / "b")
    assert program.target == "cpu:x86-64-v3"  # there is no driver for Metal in these wheels
    torch.testing.assert_close(program(IMAGES), network(IMAGES).detach())
    with pytest.raises(NoDeviceError, match=r"got none\.\nmetal:macos: "):
        torch.shark.load(tmp_path / "b", target="metal:macos")


def test_executables_do_not_tell_of_the_machine_that_made_them(network, tmp_path):
    targets = ["cpu", "cuda", "vulkan", "metal", "rocm"]
    torch.shark.export(network, (IMAGES,), tmp_path / "b", targets=targets)
    for file in (tmp_path / "b").glob("*.vmfb"):
        assert b"/torch" not in file.read_bytes(), file


def test_a_cpu_that_lacks_instructions_is_told_before_it_meets_them(bundle, tmp_path):
    shutil.copytree(bundle, tmp_path / "b")
    manifest = tmp_path / "b" / "manifest.json"
    fields = json.loads(manifest.read_text())
    fields["targets"][0]["cpu_features"] += ["avx1024", "avx4096"]
    manifest.write_text(json.dumps(fields))
    with pytest.raises(NoDeviceError, match=r"cpu:x86-64-v3: the CPU lacks avx1024, avx4096$"):
        torch.shark.load(tmp_path / "b")


@pytest.mark.parametrize("target", ["vulkan", "metal"])
def test_float64_is_refused_where_there_is_none(tmp_path, target):
    class Doubles(nn.Module):
        def forward(self, x):
            return x.double() * 2

    with pytest.raises(ExportError, match=r"expected no float64 tensor for \w+:\w+, got one by "):
        torch.shark.export(Doubles(), (torch.ones(2),), tmp_path / "b", targets=[target])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["cuda:sm_1", "rocm:gfx1", "vulkan:abacus", "metal:dos"])
def test_an_architecture_that_the_compiler_does_not_know(network, tmp_path, target):
    with pytest.raises(ExportError, match=f"IREE's compiler failed for {target}") as raised:
        torch.shark.export(network, (IMAGES,), tmp_path / "b", targets=[target])
    assert len(str(raised.value).splitlines()) < 25
    if target.startswith("cuda"):
        assert "It knows no architecture 'sm_1'." in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["tpu", "cuda:", "cuda:sm_80 --flag", ":", "", "CPU"])
def test_names_that_are_no_target(target):
    with pytest.raises(ValueError, match=r"^\[shark\] expected a target among: cpu, cuda, metal,"):
        shipping_target(target)


def test_a_cpu_that_is_not_known():
    with pytest.raises(ValueError, match=r"expected a CPU among: host, x86-64-v2, .*; got 'z80'"):
        shipping_target("cpu:z80")
