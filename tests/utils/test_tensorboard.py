"""TensorBoard's files, by tensorboardX."""

import struct
import sys

import numpy as np
import pytest

import xgrad
import xgrad.utils.tensorboard


def test_without_tensorboardx_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.delitem(vars(xgrad.utils.tensorboard), "SummaryWriter", raising=False)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        from xgrad.utils.tensorboard import SummaryWriter  # noqa: F401
    with pytest.raises(AttributeError, match="nothing"):
        xgrad.utils.tensorboard.nothing


def events(folder):
    proto = pytest.importorskip("tensorboardX.proto.event_pb2")
    (path,) = folder.iterdir()
    data = path.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        yield from proto.Event.FromString(data[12 : 12 + length]).summary.value
        data = data[16 + length :]


@pytest.mark.filterwarnings("ignore")  # tensorboardX's own, which depend on the release of NumPy and protobuf
def test_tensors_are_taken(tmp_path):
    pytest.importorskip("tensorboardX")
    from xgrad.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", xgrad.tensor(0.5, requires_grad=True) * 3, 1)
        writer.add_scalar("half", xgrad.tensor([0.5], dtype=xgrad.bfloat16), global_step=2)
        writer.add_histogram("weights", xgrad.arange(4.0))
        writer.add_image("image", xgrad.zeros(3, 2, 2))
        writer.add_text("text", "words")
        with pytest.raises(NotImplementedError, match=r"xgrad\.viz"):
            writer.add_graph(None, xgrad.ones(1))
    found = {value.tag: value for value in events(tmp_path)}
    assert found["loss"].simple_value == 1.5
    assert found["half"].simple_value == 0.5
    assert found["weights"].histo.num == 4
    assert {"image", "text/text_summary"} <= set(found)
    assert np.isclose(found["weights"].histo.sum, 6)
