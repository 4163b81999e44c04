"""The knobs: where a value comes from, what is refused, who is told."""

import re
from pathlib import Path

import pytest

from torch_shark.config import Config, knob_table, knobs, warn_of_unknown_variables
from torch_shark.errors import ConfigError, UnknownTargetError

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def config(monkeypatch):
    for knob in vars(Config).values():
        if hasattr(knob, "variable"):
            monkeypatch.delenv(knob.variable, raising=False)
    return Config()


def test_value_is_the_assigned_one_then_the_environments_then_the_default(config, monkeypatch):
    assert config.window_operators is None
    monkeypatch.setenv("TORCH_SHARK_WINDOW_OPERATORS", "7")
    assert config.window_operators == 7
    config.window_operators = 9
    assert config.window_operators == 9


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("policy", "native", "native"),
        ("disk_cache", "0", False),
        ("disk_cache", "1", True),
        ("cache_dir", "~/shark", Path.home() / "shark"),
        ("dump_dir", "", None),
        ("debug", "3", 3),
    ],
)
def test_environment_is_read_with_the_knobs_type(config, monkeypatch, name, text, value):
    monkeypatch.setenv(f"TORCH_SHARK_{name.upper()}", text)
    assert getattr(config, name) == value


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("policy", "fast", "'iree' or 'native'"),
        ("policy", "automatic", "'auto', 'iree' or 'native'"),
        ("disk_cache", "yes", "1 or 0"),
        ("cache_dir", "", "a path"),
        ("cache_max_bytes", "4G", "an integer of at least 0"),
        ("window_operators", 0, "an integer, 1 to"),
        ("debug", 5, "an integer, 0 to 3"),
    ],
)
def test_wrong_value_is_refused_and_changes_nothing(config, monkeypatch, name, value, expected):
    before = getattr(config, name)
    with pytest.raises(ConfigError) as caught:
        setattr(config, name, value)
    assert f"config.{name}" in str(caught.value)
    assert expected in str(caught.value)
    assert getattr(config, name) == before

    monkeypatch.setenv(f"TORCH_SHARK_{name.upper()}", str(value))
    with pytest.raises(ConfigError, match=f"TORCH_SHARK_{name.upper()}"):
        getattr(config, name)


def test_bool_is_no_integer(config):
    with pytest.raises(ConfigError, match="an integer, 0 to 3, got True"):
        config.debug = True


def test_unknown_target_names_the_known_ones(config):
    with pytest.raises(UnknownTargetError, match=r"config\.target .* \(auto, cpu, .*\), got 'tpu'"):
        config.target = "tpu"


def test_unknown_knob_is_refused(config):
    with pytest.raises(AttributeError, match="no knob 'polcy'; there are policy, target"):
        config.polcy = "native"


def test_scope_restores_and_tells_listeners(config):
    seen = []
    config.on_change(lambda: seen.append(config.policy))
    with config.scope(policy="native", debug=2):
        assert (config.policy, config.debug) == ("native", 2)
    assert (config.policy, config.debug) == ("auto", 0)
    assert seen == ["auto", "native", "native", "auto"]


def test_scope_restores_after_a_wrong_value(config):
    config.debug = 1
    with pytest.raises(ConfigError), config.scope(debug=3, policy="fast"):
        pass
    assert config.debug == 1


def test_readme_has_the_table_of_knobs():
    table = README.read_text().split("`make knobs` -->\n")[1].split("\n<!-- end of knobs")[0]
    assert table == knob_table(), "copy the output of `make knobs` into README.md"


def test_repr_says_what_each_knob_is_and_why(config, monkeypatch):
    monkeypatch.setenv("TORCH_SHARK_DEBUG", "2")
    config.policy = "native"
    lines = repr(config).splitlines()
    assert lines[0] == "torch_shark.config"
    assert "  policy = native (assigned)" in lines
    assert "  debug = 2 (TORCH_SHARK_DEBUG)" in lines
    assert "  target = cpu (default)" in lines
    assert len(lines) == 1 + len(knobs())


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("TORCH_SHARK_POLCY", "did you mean TORCH_SHARK_POLICY?"),
        ("TORCH_SHARK_CACHEDIR", "did you mean TORCH_SHARK_CACHE_DIR?"),
        ("TORCH_SHARK_FISH", "it changes nothing."),
    ],
)
def test_misspelled_variable_is_told(monkeypatch, variable, said):
    monkeypatch.setenv(variable, "native")
    with pytest.warns(UserWarning, match=f"no knob {variable}; {re.escape(said)}"):
        warn_of_unknown_variables()


def test_known_variables_are_not_warned_of(monkeypatch):
    for knob in knobs().values():
        monkeypatch.setenv(knob.variable, "1")
    monkeypatch.setenv("TORCH_SHARK_WERROR", "1")
    warn_of_unknown_variables()
