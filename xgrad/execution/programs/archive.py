"""Saves the compile cache as one file, and loads it on another machine, for `xgrad.compile_cache.save` and `load`.

It helps where each session has a new disk, as on Colab.  The file is a zip archive of the folder's programs under the
folder's name, which says for which machines they are.

Invariant: `load` writes programs into the cache's folder and nothing beside it, and takes nothing from a file that
others could have written: what is in it will be run.
"""

import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .folder import MOST_BYTES, check_private, folder_is_own, programs_in, used_folder

_PROGRAM = re.compile(r"[\w.-]+-cache", re.ASCII)


def save(file: str | os.PathLike[str]) -> int:
    """Write the compile cache into one file, which only you can read; returns the number of programs in it.

    `load` takes it back where the folder is lost: on a new machine of Colab, say, from a drive.

    Raises `RuntimeError` if xgrad has no compile cache.

    >>> import tempfile, xgrad
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     used = xgrad.enable_compile_cache(folder)
    ...     programs = xgrad.compile_cache.save(used / "mine.zip"), xgrad.compile_cache.load(used / "mine.zip")
    ...     xgrad.disable_compile_cache()
    >>> programs
    (0, 0)
    """
    folder = _own("save")
    programs = programs_in(folder)
    # JAX has compressed what is in them.
    with (
        _whole(Path(file).expanduser().resolve()) as made,
        zipfile.ZipFile(made, "w", strict_timestamps=False) as zipped,
    ):
        for *_, program in programs:
            with suppress(FileNotFoundError):  # another process has just deleted it
                zipped.write(program, f"{folder.name}/{program.name}")
        return len(zipped.namelist())


def load(file: str | os.PathLike[str]) -> int:
    """Add the programs that `save` wrote to the compile cache; returns how many were taken.

    Taken are those that this release of jaxlib compiled on a machine like this one, if they are not there.  **They will
    be run**: load a file that you saved yourself, from a place where nobody else could write.

    Raises `PermissionError` if the file is another user's, or others may write to it; `ValueError` if it is damaged, or
    `save` did not write it; what was read before stays; `RuntimeError` if xgrad has no compile cache.
    """
    folder, count = _own("load"), 0
    with open(Path(file).expanduser(), "rb") as opened:
        check_private(os.fstat(opened.fileno()), file, "load a file that only you can write to")
        try:
            with zipfile.ZipFile(opened) as zipped:
                if sum(info.file_size for info in zipped.infolist()) > MOST_BYTES:
                    raise ValueError(f"more than {MOST_BYTES} bytes")
                for info in zipped.infolist():
                    machine, _, name = info.filename.partition("/")
                    if machine == folder.name and _PROGRAM.fullmatch(name) and not (folder / name).exists():
                        with zipped.open(info) as stored, _whole(folder / name) as made:
                            shutil.copyfileobj(stored, made)
                        count += 1
        except OSError:  # of the folder: a full disk
            raise
        except Exception as error:
            raise ValueError(f"{file} is damaged, or compile_cache.save() did not write it: {error}") from error
    return count


@contextmanager
def _whole(file: Path) -> Iterator[Any]:
    """Open a file for the user alone; others find the whole of it, or what was there before."""
    number, name = tempfile.mkstemp("-cache", dir=file.parent)  # what a killed process leaves is trimmed with the rest
    try:
        with open(number, "wb") as made:
            yield made
        os.replace(name, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _own(name: str) -> Path:
    folder = used_folder()
    if folder is None or not folder_is_own():
        raise RuntimeError(
            f"compile_cache.{name}(): xgrad's compile cache is off (python -m xgrad doctor says why); "
            "xgrad.enable_compile_cache(folder) turns it on"
        )
    return folder
