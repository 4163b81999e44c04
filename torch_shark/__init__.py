"""A deferred PyTorch device: importing this package makes ``torch.device("shark")`` work.

``import torch`` imports it by itself, through the entry point ``torch.backends``.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec

# The name `config` is the object with the knobs, not the module that defines it.
from torch_shark.config import config
from torch_shark.errors import AbiMismatchError, ExtensionLoadError, NotBuiltError

__all__ = ["config"]
__version__ = version("torch_shark")


@cache
def _autoload() -> None:
    """Load the C++ extension and register the device; a second call does nothing.

    Raises:
        NotBuiltError: the extension is not there.
        AbiMismatchError: the extension was built for another minor version of torch.
        ExtensionLoadError: the extension is for this torch and still does not load.
    """
    _check_extension()
    try:
        import torch_shark._C  # noqa: F401
    except ImportError as error:
        raise ExtensionLoadError(str(error)) from None
    from torch_shark import registration

    registration.register()


def _check_extension() -> None:
    """Compare versions before anything is loaded: the linker's own words help nobody."""
    from torch import __version__ as running

    try:
        from torch_shark._build_info import TORCH_MINOR
    except ModuleNotFoundError:
        raise NotBuiltError() from None
    if running.split(".")[:2] != TORCH_MINOR.split("."):
        raise AbiMismatchError(TORCH_MINOR, running)
    if find_spec("torch_shark._C") is None:
        raise NotBuiltError()


# Last, because torch calls `_autoload` at the end of its own import, which may begin here. The call
# is for a process in which torch was told not to (TORCH_DEVICE_BACKEND_AUTOLOAD=0).
import torch  # noqa: E402, F401

_autoload()
