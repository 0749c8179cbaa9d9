"""as_torch(): the names that torchvision and timm ask for, and what their calls do."""

import hashlib
import sys
import typing

import numpy as np
import pytest
import torch as real

import xgrad


@pytest.fixture
def torch():
    with xgrad.as_torch(replace=True):
        import torch

        yield torch


def test_operators_of_a_library_in_cpp_are_refused_when_they_are_called(torch):
    with pytest.raises(AttributeError, match="no operator"):
        torch.ops.seeing.nms
    with pytest.raises(RuntimeError, match="operator seeing::nms does not exist"):
        torch.library.register_fake("seeing::nms", print)
    with pytest.raises(OSError, match=r"C\+\+"):
        torch.ops.load_library("seeing/_C.so")

    @torch.library.register_fake("seeing::nms")
    def fake(boxes):
        return boxes

    torch.library.register_autograd("seeing::nms", fake)
    torch.library.Library("seeing", "IMPL", "Meta").impl("nms", fake)
    assert callable(torch.ops.seeing.nms)
    with pytest.raises(NotImplementedError, match=r"xgrad\.ops\.seeing\.nms is not supported.*C\+\+.*custom_op"):
        torch.ops.seeing.nms(torch.ones(1))


def test_behind_the_block_an_unknown_operator_is_an_error():
    with xgrad.as_torch(replace=True):
        import torch

        with pytest.raises(OSError, match=r"C\+\+"):
            torch.ops.load_library("seeing/_C.so")
        torch.library.register_fake("seeing::nms", print)
    with pytest.raises(RuntimeError, match="operator seeing::nms does not exist"):
        xgrad.library.register_fake("seeing::nms", print)


def test_an_operator_in_python_takes_the_place_of_one_in_cpp(torch):
    with pytest.raises(OSError, match=r"C\+\+"):
        torch.ops.load_library("seeing/_C.so")
    library = torch.library.Library("seeing", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
    assert torch.ops.seeing.twice(torch.ones(1)).item() == 2
    with pytest.raises(AttributeError, match="nms"):
        torch.ops.seeing.nms
    library._destroy()


@pytest.fixture
def torchvision(torch, tmp_path, monkeypatch):
    """torchvision's check for its library, and nothing else of it."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").touch()
    (tmp_path / "torchvision" / "extension.py").write_text("def _assert_has_ops():\n    raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)
    from torchvision.extension import _assert_has_ops

    yield _assert_has_ops
    for name in ("torchvision", "torchvision.extension"):
        del sys.modules[name]


def test_torchvisions_operators_are_asked_of_xgrad(torch, torchvision):
    torchvision()
    boxes = torch.tensor([[0.0, 0, 4, 4], [0, 0, 4, 5], [5, 5, 9, 9]], requires_grad=True)
    kept = torch.ops.torchvision.nms(boxes, torch.tensor([0.1, 0.9, 0.5]), 0.5)
    assert (kept.dtype, kept.tolist(), kept.requires_grad) == (torch.int64, [1, 2], False)
    with pytest.raises(NotImplementedError, match=r"'torchvision::roi_pool'.*no kernel"):
        torch.ops.torchvision.roi_pool(torch.ones(1, 1, 4, 4), torch.ones(1, 5), 1.0, 2, 2)


def kept_one_by_one(boxes, scores, threshold):
    """nms in PyTorch, as torchvision's loop over pairs computes it."""
    kept: list[int] = []
    for j in scores.sort(descending=True, stable=True).indices.tolist():
        pairs = [(boxes[i].tolist(), boxes[j].tolist(), i) for i in kept]
        overlaps = []
        for one, other, i in pairs:
            width = max(0, min(one[2], other[2]) - max(one[0], other[0]))
            height = max(0, min(one[3], other[3]) - max(one[1], other[1]))
            area = [(b[2] - b[0]) * (b[3] - b[1]) for b in (boxes[i], boxes[j])]
            overlaps.append(width * height / (area[0] + area[1] - width * height))
        if not any(overlap > threshold for overlap in overlaps):
            kept.append(j)
    return kept


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nms_keeps_what_torchvision_keeps(torch, torchvision, dtype):
    draw = np.random.default_rng(0)
    for n in (0, 1, 20, 20, 20):
        boxes, scores = draw.integers(0, 6, (n, 4)).astype(dtype), draw.choice([0.0, 1, 2, np.nan, np.inf], n)
        boxes[:, 2:] += boxes[:, :2] + 1
        boxes[:1, 0] = np.nan
        scores = scores.astype(dtype)
        kept = torch.ops.torchvision.nms(torch.from_numpy(boxes), torch.from_numpy(scores), 0.25)
        assert kept.tolist() == kept_one_by_one(real.from_numpy(boxes), real.from_numpy(scores), 0.25)


@pytest.mark.parametrize(
    ("boxes", "scores", "match"),
    [
        ((4,), (4,), "boxes should be a 2d tensor, got 1D"),
        ((2, 3), (2,), "boxes should have 4 elements in dimension 1, got 3"),
        ((2, 4), (2, 1), "scores should be a 1d tensor, got 2D"),
        ((2, 4), (3,), "same number of elements in dimension 0, got 2 and 3"),
    ],
)
def test_nms_of_other_shapes(torch, torchvision, boxes, scores, match):
    with pytest.raises(RuntimeError, match=match):
        torch.ops.torchvision.nms(torch.ones(boxes), torch.ones(scores), 0.5)


def deformed(T, numbers, convolve):
    """The values and gradients of a convolution of `numbers`: an input, a weight, offsets, a mask, a bias."""
    leaves = [T.tensor(x, requires_grad=True) for x in numbers]
    out = convolve(*leaves)
    (out * T.arange(out.numel(), dtype=out.dtype).reshape(out.shape).cos()).sum().backward()
    return [out.tolist(), *(leaf.grad.tolist() for leaf in leaves)]


def test_a_deformable_convolution_without_offsets_is_one(torch, torchvision):
    draw = np.random.default_rng(0).normal
    x, weight, mask, bias = draw(size=(2, 4, 6, 5)), draw(size=(6, 2, 3, 2)), np.ones((2, 12, 3, 5)), draw(size=6)

    def ours(x, weight, bias):
        rest = torch.zeros(2, 24, 3, 5), torch.tensor(mask), bias, 2, 1, 1, 1, 1, 2, 2, 2, True
        return torch.ops.torchvision.deform_conv2d(x, weight, *rest)

    def theirs(x, weight, bias):
        return real.nn.functional.conv2d(x, weight, bias, (2, 1), (1, 1), (1, 2), 2)

    for mine, expected in zip(deformed(torch, (x, weight, bias), ours), deformed(real, (x, weight, bias), theirs)):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "width"), [("offset", 4), ("mask", 3)])
def test_moves_of_another_size_than_a_deformable_convolutions_result(torch, torchvision, name, width):
    moves = torch.zeros(1, 18, 3, width), torch.zeros(1, 9, 3, 5)
    with pytest.raises(RuntimeError, match=rf"{name}\.shape is not valid.*expected: \(1, \d+, 3, 3\)"):
        torch.ops.torchvision.deform_conv2d(
            torch.ones(1, 2, 5, 5), torch.ones(3, 2, 3, 3), *moves, torch.zeros(3), 1, 1, 0, 0, 1, 1, 1, 1, True
        )


def test_a_deformable_convolution_of_one_pixel_samples_the_image(torch, torchvision):
    draw = np.random.default_rng(1).normal
    given = draw(size=(1, 2, 5, 5)), draw(size=(3, 2, 1, 1)), 2 * draw(size=(1, 2, 5, 5)), draw(size=(1, 1, 5, 5))

    def ours(x, weight, offset, mask):
        rest = torch.zeros(3), 1, 1, 0, 0, 1, 1, 1, 1, True
        return torch.ops.torchvision.deform_conv2d(x, weight, offset, mask, *rest)

    def theirs(x, weight, offset, mask):
        places = real.stack(real.meshgrid(real.arange(5.0), real.arange(5.0), indexing="ij")) + offset[0]
        grid = (places.flip(0).permute(1, 2, 0) / 2 - 1)[None]  # x before y, from -1 to 1
        sampled = real.nn.functional.grid_sample(x, grid, align_corners=True)
        return real.nn.functional.conv2d(sampled * mask, weight)

    for mine, expected in zip(deformed(torch, given, ours), deformed(real, given, theirs)):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


def test_what_a_deformable_convolution_reads_beyond_the_border_is_zero(torch, torchvision):
    def run(image, offset):
        leaves = [image, torch.ones(1, 1, 1, 1), offset]
        for leaf in leaves:
            leaf.requires_grad_()
        rest = torch.ones(1, 1, 6, 6), torch.zeros(1), 1, 1, 1, 1, 1, 1, 1, 1, True
        return torch.ops.torchvision.deform_conv2d(*leaves, *rest), leaves

    image, offset = torch.zeros(1, 1, 4, 4), torch.zeros(1, 2, 6, 6)
    image[0, 0, 0, 0] = float("inf")
    out, _ = run(image, offset)
    border = [*out[0, 0, 0].tolist(), *out[0, 0, :, 0].tolist(), *out[0, 0, -1].tolist(), *out[0, 0, :, -1].tolist()]
    assert border == [0] * 24
    assert out[0, 0, 1, 1].item() == float("inf")
    offset = torch.zeros(1, 2, 6, 6)
    offset[0, :, 2, 2] = float("inf")
    out, leaves = run(torch.ones(1, 1, 4, 4), offset)
    assert out.sum().item() == 15
    out.sum().backward()
    assert [leaf.grad.sum().item() for leaf in leaves[:2]] == [15, 15]
    assert leaves[2].grad.isfinite().all()


def test_torch_ops_is_one_module_however_it_is_imported(torch):
    import torch.ops as ops

    assert ops is torch.ops
    assert ops.aten.add.default(torch.ones(1), 1).item() == 2
    assert ops.aten._foreach_add_.overloads() == ["default"]
    tensors = [torch.ones(1)]
    ops.aten._foreach_add_(tensors, 1)
    assert tensors[0].item() == 2


def test_modules_that_are_refused_are_reached_from_torch(torch):
    import torch.fx

    assert torch.fx.wrap("f") == "f"
    assert torch.onnx.is_in_onnx_export() is False
    assert torch.hub.get_dir().endswith("hub")
    with pytest.raises(NotImplementedError, match=r"xgrad\.hub\.load is not supported"):
        torch.hub.load("a", "b")


def test_a_state_dict_is_downloaded_once(torch, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    xgrad.save({"weight": xgrad.ones(2, 3)}, tmp_path / "plain.pth")
    content = (tmp_path / "plain.pth").read_bytes()
    there = tmp_path / f"model-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    there.write_bytes(content)
    for _ in range(2):
        state = torch.hub.load_state_dict_from_url(there.as_uri(), progress=False, check_hash=True)
        assert state["weight"].tolist() == [[1, 1, 1], [1, 1, 1]]
        there.unlink(missing_ok=True)
    kept = tmp_path / "home" / "hub" / "checkpoints"
    assert [file.name for file in kept.iterdir()] == [there.name]


def test_a_download_with_another_digest_leaves_nothing(torch, tmp_path):
    there = tmp_path / "model-0123abcd.pth"
    there.write_bytes(b"cut off")
    with pytest.raises(RuntimeError, match=r'invalid hash value.*"0123abcd"'):
        torch.hub.load_state_dict_from_url(there.as_uri(), str(tmp_path / "to"), progress=False, check_hash=True)
    assert [*(tmp_path / "to").iterdir()] == []


def test_the_folder_of_downloads_is_set(torch, tmp_path, monkeypatch):
    from xgrad.torch_modules import hub

    monkeypatch.setattr(hub, "_folder", [])
    torch.hub.set_dir(tmp_path)
    assert torch.hub.get_dir() == str(tmp_path)


CHECKS = {
    "_check": RuntimeError, "_check_index": IndexError, "_check_value": ValueError, "_check_type": TypeError,
    "_check_not_implemented": NotImplementedError,
}  # fmt: skip


def check_by_name(library):
    for name, error in CHECKS.items():
        check = getattr(library, name)
        check(True, lambda: "unread")
        with pytest.raises(error, match="three 3"):
            check(False, lambda: "three 3")
        with pytest.raises(error, match="Expected cond to be True"):
            check(False)
        with pytest.raises(TypeError, match="message must be a callable"):
            check(False, "three 3")
        with pytest.raises(TypeError, match="cond must be a bool"):
            check(1)
        with pytest.raises(TypeError, match="_check_tensor_all"):
            check(library.ones(1))


def check_sizes_and_tensors(library):
    library._check_is_size(2, max=2)
    library._check_tensor_all(library.tensor([True, True]))
    library._assert_async(library.tensor(True))
    for wrong in (
        lambda: library._check_is_size(-1),
        lambda: library._check_is_size(3, max=2),
        lambda: library._check_tensor_all(library.tensor([True, False])),
        lambda: library._assert_async(library.tensor(False)),
    ):
        with pytest.raises(RuntimeError):
            wrong()


@pytest.mark.filterwarnings("ignore:_check_is_size:FutureWarning")
@pytest.mark.parametrize("program", [check_by_name, check_sizes_and_tensors])
def test_checks(program):
    program(real)
    with xgrad.as_torch(replace=True):
        import torch

        program(torch)


def test_types_of_annotations_in_torch_jit(torch):
    from torch.jit.annotations import Dict, List, Optional, Tuple

    assert (List, Dict, Tuple, Optional) == (typing.List, typing.Dict, typing.Tuple, typing.Optional)  # noqa: UP006


def test_an_optimizers_step_is_recorded_if_it_is_differentiable(torch):
    from torch.optim.optimizer import _default_to_fused_or_foreach, _use_grad_for_differentiable

    class Step:
        @_use_grad_for_differentiable
        def step(self):
            return torch.is_grad_enabled()

    for differentiable in (True, False):
        one = Step()
        one.defaults = {"differentiable": differentiable}
        assert one.step() is differentiable
    assert torch.is_grad_enabled()
    assert _default_to_fused_or_foreach([torch.ones(1), None], False, True) == (False, False)


def test_small_functions(torch):
    from torch.nn.modules.transformer import _get_activation_fn

    assert _get_activation_fn("gelu") is torch.nn.functional.gelu
    with pytest.raises(RuntimeError, match="activation should be relu/gelu"):
        _get_activation_fn("tanh")
    assert torch._shape_as_tensor(torch.ones(2, 3)).tolist() == [2, 3]
    drawn = torch._sample_dirichlet(torch.ones(5, 3))
    torch.testing.assert_close(drawn.sum(-1), torch.ones(5))
