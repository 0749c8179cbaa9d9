"""Finds installed packages whose versions do not fit together, by their metadata, for `python -m xgrad doctor`.

Nothing is imported.  Each package's own requirements are the source: jax says which jaxlib, numpy and plugins it takes,
Flax which jax.  Invariant: this module runs, and reports, even if a package is missing or too old: it imports only
Python's own library.  `import xgrad` asks it when importing JAX fails.
"""

import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import NamedTuple

OLDEST_JAX = "0.7.2"
NEEDED = ("jax", "jaxlib", "numpy")
LIBRARIES = {  # libraries that xgrad.interop supports: the extra that installs each, and its module
    "optax": ("optax", "optax"),
    "flax": ("flax", "flax"),
    "equinox": ("equinox", "equinox"),
    "orbax-checkpoint": ("orbax", "orbax.checkpoint"),
    "safetensors": ("safetensors", "safetensors"),
    "grain": ("grain", "grain"),
}
PLUGINS = {  # plugins of JAX, each with the extra of jax that installs it
    "jax-cuda12-plugin": "cuda12",
    "jax-cuda13-plugin": "cuda13",
    "jax-rocm7-plugin": "rocm7-local",
    "libtpu": "tpu",
}
_CUDA = ("jax-cuda12-plugin", "jax-cuda13-plugin")
_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[[^]]*\])?\s*\(?([^;()]*)\)?\s*(?:;(.*))?")
_EXTRA = re.compile(r"""\s*extra\s*==\s*["']([\w-]+)["']\s*""")


class Clash(NamedTuple):
    """Packages that do not fit together, and the command that mends it.  `fatal`: xgrad cannot work with them."""

    what: str
    command: str
    fatal: bool


def version_of(package: str) -> str | None:
    """Return the installed version; None if the package is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def clashes(plugins: Iterable[str] = tuple(PLUGINS)) -> Iterator[Clash]:
    """Yield every clash, the clashes of xgrad's own requirements first; of JAX's plugins, check only `plugins`."""
    yield from _needed()
    for package in (*NEEDED, *LIBRARIES):
        yield from _unmet(package, fatal=package in NEEDED)
    yield from _plugins(plugins)


def _needed() -> Iterator[Clash]:
    version = version_of("jax")
    if version is None:  # installing jax installs the others
        yield Clash("jax is not installed", f'pip install "jax>={OLDEST_JAX}"', True)
        return
    for package in NEEDED:
        if version_of(package) is None:
            yield Clash(f"{package} is not installed", f'pip install "jax=={version}"', True)
    if _numbers(version) < _numbers(OLDEST_JAX):
        yield Clash(
            f"jax {version} is older than {OLDEST_JAX}, the oldest that xgrad runs on",
            f'pip install --upgrade "jax>={OLDEST_JAX}"',
            True,
        )


def _unmet(package: str, fatal: bool) -> Iterator[Clash]:
    """Yield the unmet requirements of an installed package, except missing packages that `_needed` yields."""
    version = version_of(package)
    if version is None:
        return
    for name, wanted, marker in _requirements(package):
        have = version_of(name)
        if marker or (have is None and name in NEEDED) or (have is not None and fits(have, wanted)):
            continue
        state = "is not installed" if have is None else f"is {have}"
        # The command upgrades a library to the installed jax; it never downgrades jax to the library.
        command = f'pip install --upgrade "{name}{wanted}"'
        if not fatal and name in NEEDED:
            command = f'pip install --upgrade {package} "jax=={version_of("jax")}"'
        yield Clash(f"{package} {version} needs {name}{wanted}, and {name} {state}", command, fatal)


def _plugins(plugins: Iterable[str]) -> Iterator[Clash]:
    jax = version_of("jax")
    wanted = {}  # plugin to versions, from jax's extras
    for name, versions, marker in _requirements("jax"):
        if (extra := _EXTRA.fullmatch(marker)) and PLUGINS.get(name) == extra[1]:
            wanted[name] = versions
    for plugin in plugins:
        version = version_of(plugin)
        if version is None:
            continue
        # libtpu has versions of its own; the others come with each jaxlib.
        own = plugin == "libtpu"
        versions = wanted.get(plugin, "" if own else f"=={version_of('jaxlib')}")
        if not fits(version, versions):
            yield Clash(
                f"{plugin} is {version}, and jax {jax} (jaxlib {version_of('jaxlib')}) needs {plugin}{versions}",
                f'pip install --upgrade "jax[{PLUGINS[plugin]}]=={jax}"',
                False,
            )
        else:
            yield from _unmet(plugin, fatal=False)
    present = [plugin for plugin in _CUDA if version_of(plugin) is not None]
    if len(present) > 1:
        rest = " ".join(f"{plugin} {plugin.replace('plugin', 'pjrt')}" for plugin in present[:-1])
        yield Clash(
            f"{' and '.join(present)} are both installed, and each claims the GPUs", f"pip uninstall {rest}", False
        )


def _requirements(package: str) -> list[tuple[str, str, str]]:
    """Return (name, versions, marker) of each requirement of an installed package."""
    try:
        texts = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return []
    found = [_REQUIREMENT.fullmatch(text) for text in texts]
    return [(m[1].lower(), m[2].replace(" ", ""), (m[3] or "").strip()) for m in found if m is not None]


def fits(version: str, wanted: str) -> bool:
    """Return True if `version` satisfies `wanted`, e.g. ">=0.10,!=0.10.3,<1", or if `wanted` cannot be parsed.

    >>> fits("0.10.2", "<=0.10.2,>=0.10.1"), fits("0.10.2", "==0.9.*"), fits("0.7.1", "~=0.7.2")
    (True, False, False)
    """
    return all(_fits(version, one) for one in wanted.split(",") if one)


def _fits(version: str, wanted: str) -> bool:
    parts = re.fullmatch(r"(===|[<>=!~]=|[<>])(.+)", wanted)
    if parts is None:
        return True
    sign, bound = parts.groups()
    have, than = _numbers(version), _numbers(bound.removesuffix(".*"))
    if bound.endswith(".*"):
        same = have[: len(than)] == than
        return same if sign == "==" else not same
    length = max(len(have), len(than))
    have_all, than_all = (n + (0,) * (length - len(n)) for n in (have, than))
    if sign == "~=":
        return have_all >= than_all and have[: len(than) - 1] == than[:-1]
    return {
        "==": have_all == than_all,
        "===": have_all == than_all,
        "!=": have_all != than_all,
        ">=": have_all >= than_all,
        "<=": have_all <= than_all,
        ">": have_all > than_all,
        "<": have_all < than_all,
    }[sign]


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of the release: 0.10.2.dev3+cuda is (0, 10, 2)."""
    found = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()
