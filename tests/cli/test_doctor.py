"""python -m xgrad doctor: versions that clash, accelerators that JAX does not see, and the command that mends each."""

import os
import pathlib
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import jax
import pytest
from packaging.specifiers import SpecifierSet  # pytest's own

import xgrad
from xgrad.cli import doctor, main, requirements
from xgrad.cli.accelerators import Accelerator, accelerators
from xgrad.cli.requirements import clashes, fits

# As jax and the others write them.
JAX = {
    "jax": (
        "0.10.2",
        [
            "jaxlib<=0.10.2,>=0.10.1",
            "numpy>=2.0",
            'jax-cuda12-plugin[with-cuda]<=0.10.2,>=0.10.2; extra == "cuda12"',
            'jax-cuda13-plugin[with-cuda]<=0.10.2,>=0.10.2; extra == "cuda13"',
            'jax-cuda13-plugin<=0.10.2,>=0.10.2; extra == "cuda13-local"',
            'libtpu==0.0.42.*; extra == "tpu"',
            'kubernetes; extra == "k8s"',
        ],
    ),
    "jaxlib": ("0.10.2", ["numpy>=2.0"]),
    "numpy": ("2.4.6", None),
}


class Metadata:
    """In place of importlib.metadata: {package: (version, requirements)}."""

    PackageNotFoundError = PackageNotFoundError

    def __init__(self, packages):
        self.packages = packages

    def of(self, package):
        if package not in self.packages:
            raise PackageNotFoundError(package)
        return self.packages[package]

    def version(self, package):
        return self.of(package)[0]

    def requires(self, package):
        return self.of(package)[1]


@pytest.fixture
def machine(monkeypatch):
    """Pretend that other packages are installed."""

    def pretend(**changed):
        packages = dict(JAX)
        for name, package in changed.items():
            name = name.replace("_", "-")
            packages.pop(name, None)
            if package is not None:
                packages[name] = package
        monkeypatch.setattr(requirements, "metadata", Metadata(packages))

    pretend()
    return pretend


def only(found):
    (clash,) = found
    return clash


def test_what_fits_is_no_clash(machine):
    assert not list(clashes())
    machine(
        flax=("0.12.8", ["jax>=0.10.0", "rich>=11.1"]),
        rich=("15.0", None),
        jax_cuda13_plugin=("0.10.2", ['jax-cuda13-pjrt==0.10.2; extra == "x"']),
        libtpu=("0.0.42.1", None),
    )
    assert not list(clashes())


@pytest.mark.parametrize(
    ("changed", "what", "command", "fatal"),
    [
        (dict(jax=None, jaxlib=None), "jax is not installed", 'pip install "jax>=0.7.2"', True),
        (dict(jaxlib=None), "jaxlib is not installed", 'pip install "jax==0.10.2"', True),
        (
            dict(jax=("0.7.1", [])),
            "jax 0.7.1 is older than 0.7.2, the oldest that xgrad runs on",
            'pip install --upgrade "jax>=0.7.2"',
            True,
        ),
        (
            dict(jaxlib=("0.9.0", [])),
            "jax 0.10.2 needs jaxlib<=0.10.2,>=0.10.1, and jaxlib is 0.9.0",
            'pip install --upgrade "jaxlib<=0.10.2,>=0.10.1"',
            True,
        ),
        (
            dict(numpy=("1.26.4", None), jaxlib=("0.10.2", [])),
            "jax 0.10.2 needs numpy>=2.0, and numpy is 1.26.4",
            'pip install --upgrade "numpy>=2.0"',
            True,
        ),
        (
            dict(jax_cuda13_plugin=("0.9.2", [])),
            "jax-cuda13-plugin is 0.9.2, and jax 0.10.2 (jaxlib 0.10.2) needs jax-cuda13-plugin<=0.10.2,>=0.10.2",
            'pip install --upgrade "jax[cuda13]==0.10.2"',
            False,
        ),
        (
            dict(jax_cuda12_plugin=("0.10.2", ["jax-cuda12-pjrt==0.10.2"]), jax_cuda12_pjrt=("0.10.1", [])),
            "jax-cuda12-plugin 0.10.2 needs jax-cuda12-pjrt==0.10.2, and jax-cuda12-pjrt is 0.10.1",
            'pip install --upgrade "jax-cuda12-pjrt==0.10.2"',
            False,
        ),
        (
            dict(jax_cuda12_plugin=("0.10.2", []), jax_cuda13_plugin=("0.10.2", [])),
            "jax-cuda12-plugin and jax-cuda13-plugin are both installed, and each claims the GPUs",
            "pip uninstall jax-cuda12-plugin jax-cuda12-pjrt",
            False,
        ),
        (
            dict(libtpu=("0.0.41", [])),
            "libtpu is 0.0.41, and jax 0.10.2 (jaxlib 0.10.2) needs libtpu==0.0.42.*",
            'pip install --upgrade "jax[tpu]==0.10.2"',
            False,
        ),
        (
            dict(flax=("0.13.0", ["jax>=0.11.0"])),
            "flax 0.13.0 needs jax>=0.11.0, and jax is 0.10.2",
            'pip install --upgrade flax "jax==0.10.2"',
            False,
        ),
        (
            dict(orbax_checkpoint=("0.12.8", ["jax >= 0.6.0", "tensorstore >= 0.1.84"])),
            "orbax-checkpoint 0.12.8 needs tensorstore>=0.1.84, and tensorstore is not installed",
            'pip install --upgrade "tensorstore>=0.1.84"',
            False,
        ),
    ],
)
def test_a_clash_is_named_with_the_command_that_mends_it(machine, changed, what, command, fatal):
    machine(**changed)
    assert only(clashes()) == (what, command, fatal)


@pytest.mark.parametrize("version", ["0.10.2", "0.7.2", "1.26.4", "2.0", "0.10.2.dev20250101+cuda", "3"])
@pytest.mark.parametrize(
    "wanted",
    ["", ">=0.10.2", "<=0.10.2,>=0.10.1", "==0.10.*", "!=0.7.*", "~=0.7.2", "~=2.0", ">2,<3", "!=0.7.2", "===0.10.2"],
)
def test_versions_fit_as_packaging_says(version, wanted):
    bare = version.partition(".dev")[0]  # of a version that is not released yet the release counts
    assert fits(version, wanted) == SpecifierSet(wanted).contains(bare)


def test_doctor_says_clashes_and_exits_with_1_only_if_xgrad_cannot_work(machine, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "libraries", lambda: iter(()))
    for later in ("donation", "gradients"):
        monkeypatch.setattr(doctor, later, lambda: iter(()))
    machine(flax=("0.13.0", ["jax>=0.11.0"]))
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "clash  flax 0.13.0 needs jax>=0.11.0, and jax is 0.10.2\n       mend: pip install --upgrade flax" in text
    assert text.endswith("xgrad works; 1 thing around it should be mended\n")

    machine(jaxlib=("0.9.0", []))
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "WRONG  jax 0.10.2 needs jaxlib<=0.10.2,>=0.10.1, and jaxlib is 0.9.0\n       mend: pip install" in text
    assert text.endswith("1 thing is wrong\n")


def test_a_library_that_cannot_be_imported_is_a_clash_and_one_that_is_absent_is_told(machine, monkeypatch):
    def import_module(name):
        if name == "flax":
            raise AttributeError("module 'jax' has no attribute 'gone'\nmore")

    monkeypatch.setattr(doctor.importlib, "import_module", import_module)
    machine(flax=("0.8.0", []), optax=("0.2.8", []), torch=("2.13.0", []))
    optax, flax, absent, torch = doctor.libraries()
    assert optax == (None, "optional: optax 0.2.8", None)
    assert flax == (
        "clash",
        "flax 0.8.0 cannot be imported: AttributeError: module 'jax' has no attribute 'gone'",
        'pip install --upgrade flax "jax==0.10.2"',
    )
    assert 'pip install "xgrad[equinox,orbax,safetensors,grain]"' in absent.line
    assert "torch 2.13.0" in torch.line


# ---------------------------------------------------------------- devices


def folder(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}.82.07  Release Build\n"


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        ({"dev/null": ""}, {}, []),
        ({"dev/nvidia0": "", "dev/nvidiactl": ""}, {}, [("gpu", "/dev/nvidia0", "xgrad[cuda13]")]),
        ({"dev/nvidiactl": ""}, {}, []),
        (
            {"dev/nvidia1": "", "proc/driver/nvidia/version": DRIVER.format(580)},
            {},
            [("gpu", "/dev/nvidia1", "xgrad[cuda13]")],
        ),
        (
            {"dev/nvidia0": "", "proc/driver/nvidia/version": DRIVER.format(550)},
            {},
            [("gpu", "/dev/nvidia0", "xgrad[cuda12]")],
        ),
        (
            {"dev/dxg": "", "usr/lib/wsl/lib/libcuda.so.1": ""},
            {},
            [("gpu", "/dev/dxg", "xgrad[cuda13]")],
        ),
        ({"dev/kfd": ""}, {}, [("gpu", "/dev/kfd", "jax[rocm7-local]")]),
        ({"dev/accel0": ""}, {}, [("tpu", "/dev/accel0", "xgrad[tpu]")]),
        ({"dev/null": ""}, {"TPU_WORKER_ID": "0"}, [("tpu", "the variable TPU_WORKER_ID", "xgrad[tpu]")]),
        (
            {"sys/bus/pci/devices/04/vendor": "0x1ae0\n", "sys/bus/pci/devices/04/device": "0x0063\n"},
            {},
            [("tpu", "/sys/bus/pci/devices/04", "xgrad[tpu]")],
        ),
        ({"sys/bus/pci/devices/04/vendor": "0x1ae0\n", "sys/bus/pci/devices/04/device": "0x0042\n"}, {}, []),
    ],
)
def test_accelerators_of_the_machine_are_found(tmp_path, files, environment, expected):
    found = accelerators(folder(tmp_path, files), environment)
    assert [(a.platform, a.seen) for a in found] == [(kind, seen) for kind, seen, _ in expected]
    assert [a.command for a in found] == [f'pip install "{what}"' for *_, what in expected]


@pytest.fixture
def gpu(monkeypatch):
    """A GPU is in the machine, and JAX sees the CPU."""
    command = 'pip install "xgrad[cuda13]"'
    here = Accelerator("an NVIDIA GPU", "gpu", "/dev/nvidia0", command)
    monkeypatch.setattr(doctor, "accelerators", lambda: [here])
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_an_accelerator_without_a_plugin_is_named_with_the_extra(machine, gpu, monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [Device("cpu")])
    found = only(doctor.hidden())
    assert found.state == "clash"
    assert found.line.startswith(
        "an NVIDIA GPU is in this machine (/dev/nvidia0), and JAX does not see it: JAX's plugin"
    )
    assert found.command == 'pip install "xgrad[cuda13]"'


def test_an_accelerator_with_a_plugin_that_fails_is_asked_why(machine, gpu, monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [Device("cpu")])
    machine(jax_cuda12_plugin=("0.10.2", []))
    found = only(doctor.hidden())
    assert "jax-cuda12-plugin 0.10.2 is installed" in found.line
    assert found.command == 'JAX_PLATFORMS=cuda python -c "import jax; jax.devices()"'
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert only(doctor.hidden()).command == "unset CUDA_VISIBLE_DEVICES"


def test_an_accelerator_that_the_environment_hides_is_no_clash(machine, gpu, monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [Device("cpu")])
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    found = only(doctor.hidden())
    assert found.state is None
    assert "JAX_PLATFORMS=cpu" in found.line


@pytest.mark.parametrize("platform", ["gpu", "cuda"])
def test_an_accelerator_that_jax_sees_is_not_told_again(machine, gpu, monkeypatch, platform):
    monkeypatch.setattr(jax, "devices", lambda: [Device(platform)])
    assert not list(doctor.hidden())


class Device:
    """A device with a memory."""

    def __init__(self, platform, stats=None):
        self.platform, self.stats = platform, stats

    def memory_stats(self):
        if isinstance(self.stats, Exception):
            raise self.stats
        return self.stats


def test_targets_are_told_with_their_compiler_or_how_to_install_it(machine):
    tpu, gpu = doctor.targets()
    assert tpu.line.startswith("targets tpu:v2, ")
    assert 'its compiler is not installed: pip install "jax[tpu]==0.10.2"' in tpu.line
    assert gpu.line.startswith("targets cuda:t4, cuda:h100: ")
    assert "pip install jax-cuda12-plugin==0.10.2" in gpu.line


def test_a_target_with_its_compiler_has_the_version(monkeypatch):
    monkeypatch.setattr("xgrad.chips.targets.missing", lambda platform: None)
    monkeypatch.setattr("xgrad.chips.targets.version_of", lambda package: "0.0.42.1")
    tpu, gpu = doctor.targets()
    assert tpu.line.endswith("tpu:v7x: compiled for by libtpu 0.0.42.1")
    assert gpu.line.endswith("cuda:h100: compiled for by jax-cuda12-plugin 0.0.42.1")


def test_memory_of_a_device_is_told_where_it_is_known():
    stats = {"bytes_limit": 100 * 2**30, "bytes_in_use": 3 * 2**20}
    assert doctor._memory(Device("gpu", stats)) == ", 100.0 GiB for JAX, 3 MiB in use"
    assert doctor._memory(Device("cpu")) == ""
    assert doctor._memory(Device("x", NotImplementedError("no stats"))) == ""


def test_devices_are_told_with_platform_and_host_memory():
    lines = [found.line for found in doctor.devices()]
    assert "cpu: cpu" in lines
    assert any(line.startswith("the platform is cpu, the default device cpu") for line in lines)
    if pathlib.Path("/proc/meminfo").exists():
        assert any("memory of the host: " in line and "GiB" in line for line in lines)


def test_a_backend_that_cannot_start_is_told_once(monkeypatch, capsys):
    def fails():
        raise RuntimeError("Unable to initialize backend 'tpu': no such thing\nmore")

    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    for check in ("libraries", "devices", "hidden", "donation", "gradients"):
        monkeypatch.setattr(doctor, check, fails)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert text.count("Unable to initialize backend") == 1
    assert "mend: unset JAX_PLATFORMS" in text


def test_import_without_jax_says_what_to_install(tmp_path):
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise ImportError('no jax')")
    path = os.pathsep.join((str(tmp_path), str(pathlib.Path(xgrad.__file__).parents[1])))
    # -S: without the installed packages there is no metadata of jax either.
    command = [sys.executable, "-S", "-m", "xgrad", "doctor"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith('ImportError: no jax\njax is not installed: pip install "jax>=0.7.2"\n')
