"""Reads files of `torch.save` for `xgrad.load`: a zip of a pickle (`_torch_pickle.py`) and storages.

Invariant: every byte count is checked against the file.  TorchScript archives and pickled classes are refused.
(PyTorch: torch/serialization.py.)
"""

import io
import pickle
import zipfile
from collections.abc import Callable

from ._safetensors_file import FileError
from ._torch_pickle import Read, Reader, Tensors


class _Archive:
    """The zip in a file of `torch.save`, with checked reads of its entries."""

    def __init__(self, data: memoryview, file: str) -> None:
        self.file = file
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        if sum(info.compress_size for info in self._zip.infolist()) > len(data):
            raise FileError(f"{file}: its parts overlap: they are said to be larger than the file")
        names = [name for name in self._zip.namelist() if name.endswith("/data.pkl") or name == "data.pkl"]
        if len(names) != 1:
            raise FileError(f"{file} is a zip, but none of torch.save: it has {len(names)} files called data.pkl")
        self._folder = names[0].removesuffix("data.pkl")
        if any(name.startswith(self._folder + "code/") for name in self._zip.namelist()):
            raise pickle.UnpicklingError(
                f"{file} is a TorchScript archive, which holds a program: save its state_dict()"
            )
        if self._has("byteorder") and self.read("byteorder") != b"little":
            raise FileError(f"{file} was written on a machine of another byte order: save it again on this one")

    def _has(self, name: str) -> bool:
        return self._folder + name in self._zip.NameToInfo

    def read(self, name: str) -> bytes:
        """Return one file of the zip; its checksum is checked."""
        info = self._zip.getinfo(self._folder + name)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise FileError(f"{self.file}: '{name}' is compressed, or its sizes differ, as torch.save leaves none")
        return self._zip.read(info)


def read_torch_file(data: memoryview, file: str) -> Read:
    """Return what a zip of torch.save holds."""

    def read() -> Read:
        archive, tensors = _Archive(data, file), Tensors(file)
        pickled = archive.read("data.pkl")
        value = Reader(io.BytesIO(pickled), tensors, len(pickled)).load()
        return tensors.complete(value, lambda key: archive.read(f"data/{key}"))

    return in_words(read, file)


def in_words(read: Callable[[], Read], file: str) -> Read:
    """Return `read()`; what fails in it says which file it was."""
    try:
        return read()
    except (FileError, pickle.UnpicklingError) as error:
        if file in str(error):
            raise
        raise type(error)(f"{file}: {error}") from None
    except MemoryError:  # of a file that may be sound
        raise
    except Exception as error:  # a damaged pickle fails in any way that its opcodes can
        raise FileError(
            f"{file} is damaged, or cut off: it begins as a file of torch.save, but reading it fails with "
            f"{type(error).__name__}: {error}"
        ) from None
