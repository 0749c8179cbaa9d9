"""torch.hub for `as_torch()`: downloads state dictionaries into a folder and loads them (PyTorch: torch/hub.py).

Functions that download code and run it are refused.
"""

import hashlib
import os
import re
import sys
import uuid
from typing import Any
from urllib.parse import urlparse as urlparse
from urllib.request import Request, urlopen

from .. import serialization

HASH_REGEX: re.Pattern[str] = re.compile(r"-([a-f0-9]*)\.")  # resnet18-f37072fd.pth: the digest's first digits
_folder: list[str] = []  # where `set_dir` put the folder
_CHUNK = 1 << 20


def _get_torch_home() -> str:
    """Return the folder in which packages keep what they download."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """Return the folder of downloads: $TORCH_HOME/hub, or where `set_dir` put it."""
    return _folder[-1] if _folder else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep downloads in another folder."""
    _folder[:] = [os.path.expanduser(d)]


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Put what is at `url` into the file `dst`, whole or not at all.

    Raises `RuntimeError` if the SHA256 digest does not start with `hash_prefix`.  With `progress` it says on stderr how
    much has arrived.
    """
    dst = os.path.expanduser(dst)
    partial = f"{dst}.{uuid.uuid4().hex}.partial"
    digest, size = hashlib.sha256(), 0
    try:
        with urlopen(Request(url, headers={"User-Agent": "torch.hub"})) as source, open(partial, "xb") as file:
            while chunk := source.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                if progress:
                    print(f"\r{size / 1e6:.1f} MB", end="", file=sys.stderr)
        if progress:
            print(file=sys.stderr)
        if not digest.hexdigest().startswith(hash_prefix or ""):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}"): {url}')
        os.replace(partial, dst)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True, check_hash: bool = False,
    file_name: str | None = None, weights_only: bool = False,
) -> Any:  # fmt: skip
    """Return what `xgrad.load` reads from the file at `url`, which is downloaded once, into `model_dir`.

    model_dir: None for the folder checkpoints in `get_dir()`.  check_hash: compare the digest with the one in the
    file's name.
    """
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    kept = os.path.join(folder, name)
    if not os.path.exists(kept):
        print(f'Downloading: "{url}" to {kept}')
        known = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, kept, known.group(1) if known else None, progress)
    return serialization.load(kept, map_location=map_location, weights_only=weights_only)


class tqdm:
    """Makes the bar of the package tqdm, which has to be installed."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        from tqdm.auto import tqdm as bar  # an extra, which few programs ask for

        return bar(*args, **options)


load_url = load_state_dict_from_url  # of torch.utils.model_zoo


def __dir__() -> list[str]:
    return ["download_url_to_file", "get_dir", "load_state_dict_from_url", "set_dir", "tqdm"]
