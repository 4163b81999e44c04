"""Each example runs in a process of its own, ends well, and says what it claims."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, cache, policy="iree"):
    """What the example prints, run without a network and with a disk cache of its own."""
    environment = os.environ | {
        "TORCH_SHARK_CACHE_DIR": str(cache),
        "TORCH_SHARK_POLICY": policy,
        "HF_HUB_OFFLINE": "1",
        "OMP_WAIT_POLICY": "passive",  # threads that spin would take the cores from the other tests
    }
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def number(pattern, text):
    """The number that the pattern's group finds."""
    found = re.search(pattern, text)
    assert found is not None, text
    return float(found[1])


def similarities(text):
    """The table of similarities, a list of rows."""
    rows = re.findall(r"^ *\d+  \D+\. +(.*)$", text, re.MULTILINE)
    return [[float(value) for value in row.split()] for row in rows]


def test_embed_sentences_compiles_once(tmp_path):
    cold, warm = run("embed_sentences.py", tmp_path), run("embed_sentences.py", tmp_path)
    compiles = number(r"compiles (\d+)", cold)
    assert compiles > 0
    assert "The next run compiles nothing." in cold
    assert number(r"compiles (\d+)", warm) == 0
    assert number(r"disk hits (\d+)", warm) == compiles
    assert "Nothing was compiled." in warm
    for output in (cold, warm):
        assert number(r"difference from CPU +(\S+)", output) <= 1e-4
        assert number(r"operators in IREE executables +(\S+)%", output) >= 90
    assert similarities(cold) == similarities(warm)


def test_embed_sentences_finds_the_pairs(tmp_path):
    output = run("embed_sentences.py", tmp_path, "native")
    table = similarities(output)
    assert len(table) >= 8
    for i in (0, 2, 4, 6):  # sentences of one subject stand side by side
        others = [value for j, value in enumerate(table[i]) if j not in (i, i + 1)]
        assert table[i][i + 1] > 0.3 > max(others)
    assert number(r"difference from CPU +(\S+)", output) == 0
    assert number(r"regions (\d+)", output) == 0


def test_train_digits_follows_the_cpu(tmp_path):
    output = run("train_digits.py", tmp_path)
    assert number(r"largest relative difference +(\S+)", output) <= 1e-3
    assert number(r"on shark +\S+%, (\S+)%", output) >= 95
    assert number(r"windows per step .* at most (\d+)", output) == 1
    assert number(r"compiles per step +\[(\d+)", output) > 0
    assert number(r"compiles per step .* then (\d+) in all", output) == 0


def test_train_digits_is_bit_equal_natively(tmp_path):
    output = run("train_digits.py", tmp_path, "native")
    assert number(r"largest relative difference +(\S+)", output) == 0
    assert "compiles per step             [0, 0, 0], then 0 in all" in output


def test_compile_backend_runs_regions(tmp_path):
    output = run("compile_backend.py", tmp_path)
    assert number(r"regions (\d+)", output) > 0
    assert number(r"result .* (\S+)\n", output) <= 1e-6


def test_export_sentences_runs_at_other_sizes(tmp_path):
    output = run("export_sentences.py", tmp_path)
    assert "loaded for                   cpu:x86-64-v3" in output
    assert re.findall(r"(\d) sentences of \d+ tokens +\[(\d), 384\]", output) == [
        ("1", "1"),
        ("2", "2"),
        ("4", "4"),
    ]
    assert number(r"largest difference from CPU +(\S+)", output) <= 1e-5


@pytest.mark.parametrize("policy", ["native", pytest.param("iree", marks=pytest.mark.slow)])
def test_finetune_bert_learns(tmp_path, policy):
    output = run("finetune_bert.py", tmp_path, policy)
    epochs = re.findall(r"loss (\S+)   windows (\d+)   compiles (\d+)", output)
    assert float(epochs[-1][0]) < 0.7 * float(epochs[0][0])
    assert {(windows, compiles) for _, windows, compiles in epochs[2:]} == {("6", "0")}
    assert (epochs[0][2] == "0") == (policy == "native")
    assert re.findall(r"\. +(music|food|weather)$", output, re.MULTILINE) == [
        "music",
        "food",
        "weather",
    ]
