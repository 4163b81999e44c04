"""A bundle on disk: a folder with a manifest, parameters, and an executable for each target.

It appears whole or not at all, and is checked before anything of it is run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch_shark.export.errors import BundleError
from torch_shark.export.manifest import FORMAT, FileEntry, Manifest, NewerFormatError

MANIFEST = "manifest.json"
PARAMETERS = "parameters.irpa"


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to write a bundle into; it becomes `path` at the end, if nothing fails.

    A bundle that is there is replaced: a reader finds the old one, the new one, or, for a moment,
    none. Nothing else is replaced.

    Raises:
        FileExistsError: there is something else.
    """
    if path.exists() and not (path / MANIFEST).is_file():
        raise FileExistsError(f"[shark] expected {path} to be free or a bundle, got something else")
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        content = folder / "new"
        content.mkdir()
        yield content
        if path.exists():
            path.rename(folder / "old")
        try:
            content.rename(path)
        except OSError:
            (folder / "old").rename(path)
            raise
    finally:
        shutil.rmtree(folder)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, last, and see that all is on the disk."""
    (folder / MANIFEST).write_text(manifest.to_json())
    for name in (*manifest.files, MANIFEST):
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())


def describe(folder: Path) -> dict[str, FileEntry]:
    """Return size and checksum of each file in a folder."""
    return {
        file.name: FileEntry(file.stat().st_size, _sha256(file))
        for file in sorted(folder.iterdir())
    }


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a bundle.

    Raises:
        BundleError: there is none, or it is not one, or a later version wrote it.
    """
    file = path / MANIFEST
    try:
        return Manifest.from_json(file.read_text())
    except OSError as error:
        raise BundleError(path, f"expected a folder with {MANIFEST}, got {error}") from error
    except NewerFormatError as error:
        reason = f"expected a format of at most {FORMAT}, got {error}: use a newer torch_shark"
        raise BundleError(file, reason) from None
    except NotImplementedError as error:
        reason = f"expected its classes to be imported before, got {error}"
        raise BundleError(file, reason) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"expected a bundle's manifest, got {type(error).__name__}: {error}"
        raise BundleError(file, reason) from error


def check_files(path: Path, manifest: Manifest, names: tuple[str, ...]) -> None:
    """See that files are what the manifest says.

    Raises:
        BundleError: one is missing, or has another size or checksum.
    """
    for name in names:
        file = path / name
        expected = manifest.files.get(name)
        if expected is None or file.parent != path:
            raise BundleError(path / MANIFEST, f"expected size and checksum of {name!r}, got none")
        if not file.is_file():
            raise BundleError(file, "expected a file, got none")
        size = file.stat().st_size
        if size != expected.bytes:
            raise BundleError(file, f"expected {expected.bytes} bytes, got {size}")
        if (found := _sha256(file)) != expected.sha256:
            raise BundleError(file, f"expected the SHA-256 {expected.sha256}, got {found}")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
