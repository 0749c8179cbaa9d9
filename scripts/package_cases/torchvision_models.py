"""torchvision: models, transforms.v2 on tensors, boxes, pictures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .image_models import measure

TITLE = "torchvision {version}"
HEAD = """\
Models as those of timm.  Of the functions all results are compared, of uint8 exactly, and the gradients where there are
some.  Where arithmetic falls on a whole number (`adjust_saturation` by 1.4) or between two pixels (`nearest`), its last
bit decides a pixel.  Random transforms draw other numbers than PyTorch's.

Of the operators in C++ `torchvision.ops.nms` is xgrad's, on the host, and `roi_align` has a form in Python, so that
detection models run: Faster, Mask and Keypoint R-CNN, RetinaNet, FCOS and SSDlite find PyTorch's boxes.  A compiled
function cannot call `nms`, whose results have as many elements as boxes stay.  `deform_conv2d` runs.  `roi_pool`,
`ps_roi_align` and `ps_roi_pool` raise `NotImplementedError`: use `roi_align`, or register a kernel by
`torch.library.impl("torchvision::roi_pool", "default", function)`.  In place of `io.read_image`, `decode_image` and
`encode_png` use `PIL.Image` with `pil_to_tensor` and `to_pil_image` of `transforms.v2.functional`.

| what | weights | PyTorch's loss, gradients | xgrad |
| --- | --- | --- | --- |"""

# The function in torchvision.models → (size of the image, options)
_MODELS: dict[str, tuple[int, dict[str, Any]]] = {
    "resnet18": (64, {}),
    "resnext50_32x4d": (64, {}),
    "mobilenet_v2": (64, {}),
    "mobilenet_v3_small": (64, {}),
    "efficientnet_b0": (64, {}),
    "convnext_tiny": (64, {}),
    "densenet121": (64, {}),
    "regnet_x_400mf": (64, {}),
    "regnet_y_400mf": (64, {}),
    "swin_t": (64, {}),
    "swin_v2_t": (64, {}),
    "vit_b_16": (32, {"image_size": 32}),
    "squeezenet1_1": (64, {}),
    "googlenet": (64, {"aux_logits": False, "init_weights": False}),
    "inception_v3": (80, {"aux_logits": False, "init_weights": False}),
    "shufflenet_v2_x0_5": (64, {}),
    "mnasnet0_5": (64, {}),
    "segmentation.lraspp_mobilenet_v3_large": (64, {"weights_backbone": None}),
    "segmentation.deeplabv3_mobilenet_v3_large": (64, {"weights_backbone": None}),
}


def _image(*shape: int) -> np.ndarray:
    return np.random.RandomState(3).randint(0, 256, shape).astype("uint8")


def _geometry(image: Any) -> dict[str, Any]:
    """Return what the functions that move pixels make of an image."""
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional as F

    found = {}
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        for antialias in (False, True):
            for size in ([9, 7], [21, 30]):
                name = f"resize {mode} {antialias} {size}"
                found[name] = F.resize(image, size, interpolation=InterpolationMode(mode), antialias=antialias)
    for mode in ("nearest", "bilinear"):
        way = InterpolationMode(mode)
        found[f"rotate {mode}"] = F.rotate(image, 30.0, interpolation=way, expand=True, fill=7)
        found[f"affine {mode}"] = F.affine(image, 15.0, [2, 1], 1.2, [5.0, 3.0], interpolation=way)
        corners = [[0, 0], [15, 0], [15, 12], [0, 12]], [[1, 2], [13, 0], [15, 11], [1, 10]]
        found[f"perspective {mode}"] = F.perspective(image, *corners, interpolation=way)
    for mode in ("constant", "edge", "reflect", "symmetric"):
        found[f"pad {mode}"] = F.pad(image, [2, 3, 1, 0], padding_mode=mode)
    return found | {
        "crop": F.crop(image, 2, 3, 8, 9), "crop outside": F.crop(image, -2, 3, 20, 9),
        "center": F.center_crop(image, [8, 20]), "resized_crop": F.resized_crop(image, 2, 3, 8, 9, [12, 12]),
        "flip": F.horizontal_flip(image), "vertical": F.vertical_flip(image),
        **{f"five {i}": part for i, part in enumerate(F.five_crop(image, [6, 6]))},
    }  # fmt: skip


def _colour(image: Any) -> dict[str, Any]:
    """Return what the functions of colours make of an image."""
    import torch  # noqa: TID251 - xgrad, or PyTorch
    from torchvision.transforms.v2 import functional as F

    floating = F.to_dtype(image, torch.float32, scale=True)
    found = {
        "float": floating, "uint8": F.to_dtype(floating, torch.uint8, scale=True), "invert": F.invert(image),
        "normalize": F.normalize(floating, [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]), "posterize": F.posterize(image, 3),
        "erase": F.erase(image, 2, 3, 4, 5, image.new_zeros(())), "permute": F.permute_channels(image, [2, 0, 1]),
        "equalize": F.equalize(image),
    }  # fmt: skip
    for kind, x in (("uint8", image), ("float", floating)):
        threshold = 0.5 if kind == "float" else 128
        found |= {f"{name} {kind}": value for name, value in {
            "brightness": F.adjust_brightness(x, 1.3), "contrast": F.adjust_contrast(x, 0.7),
            "saturation": F.adjust_saturation(x, 1.37), "hue": F.adjust_hue(x, 0.1), "gamma": F.adjust_gamma(x, 1.5),
            "sharpness": F.adjust_sharpness(x, 1.7), "gaussian": F.gaussian_blur(x, [3, 5], [1.0, 0.7]),
            "solarize": F.solarize(x, threshold), "autocontrast": F.autocontrast(x), "grey": F.rgb_to_grayscale(x),
        }.items()}  # fmt: skip
    return found


def _transforms(image: Any) -> dict[str, Any]:
    """Return what classes make of images, boxes and masks; random ones with the one outcome that they may have."""
    import torch  # noqa: TID251 - xgrad, or PyTorch
    from torchvision import transforms, tv_tensors
    from torchvision.transforms import v2

    chain = v2.Compose([
        v2.ToImage(), v2.RandomHorizontalFlip(p=1), v2.Resize((12, 14)), v2.CenterCrop(10),
        v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3),
    ])  # fmt: skip
    boxes = tv_tensors.BoundingBoxes(torch.tensor([[1, 2, 8, 9], [0, 0, 5, 12]]), format="XYXY", canvas_size=(13, 16))
    mask = tv_tensors.Mask((image[:1] > 100).to(torch.uint8))
    picture, moved, masked = chain(tv_tensors.Image(image), boxes, mask)
    found = {"chain": picture, "chain boxes": moved, "chain mask": masked}
    for transform in (
        v2.ColorJitter(brightness=(1.2, 1.2)), v2.RandomRotation((30, 30)), v2.RandomVerticalFlip(p=1),
        v2.RandomAffine((10, 10), translate=(0, 0)), v2.Pad(2), v2.RandomGrayscale(p=1), v2.GaussianBlur(3, (1, 1)),
        v2.RandomInvert(p=1), v2.Grayscale(3), v2.RandomEqualize(p=1), v2.RandomSolarize(100, p=1),
    ):  # fmt: skip
        name = type(transform).__name__
        out = transform(tv_tensors.Image(image), boxes, mask)
        assert type(out[1]) is tv_tensors.BoundingBoxes, type(out[1])
        found |= {f"{name} {i}": part for i, part in enumerate(out)}
    old = transforms.Compose(
        [transforms.Resize(12), transforms.CenterCrop(8), transforms.ConvertImageDtype(torch.float32)]
    )
    found["old"] = old(image)
    for transform in (
        v2.RandomResizedCrop(8),
        v2.RandomCrop(6),
        v2.RandAugment(),
        v2.TrivialAugmentWide(),
        v2.AugMix(),
    ):
        assert transform(image).dtype == image.dtype, type(transform)  # drawn otherwise than by PyTorch
    assert v2.MixUp(num_classes=3)(image[None].float(), torch.tensor([1]))[1].shape == (1, 3)
    picture = v2.functional.to_pil_image(image)
    return found | {"pil": v2.functional.pil_to_tensor(picture), "ToTensor": transforms.ToTensor()(picture)}


def _boxes(image: Any) -> dict[str, Any]:
    """Return what torchvision.ops makes of boxes, masks and maps, with gradients."""
    import torch  # noqa: TID251 - xgrad, or PyTorch
    from torchvision import ops

    a = torch.tensor([[1.0, 2, 8, 9], [0, 0, 5, 12], [3, 3, 4, 7]], requires_grad=True)
    b = torch.tensor([[2.0, 2, 7, 9], [1, 0, 6, 11], [9, 9, 12, 12]])
    maps = (image[None].float() / 255).requires_grad_()
    rois = torch.tensor([[0.0, 1, 2, 8, 9], [0, 0, 0, 5, 12]])
    scores = (maps[0, 0, :3] - 0.5) * 4
    found = {
        "iou": ops.box_iou(a, b), "giou": ops.generalized_box_iou(a, b), "ciou": ops.complete_box_iou(a, b),
        "convert": ops.box_convert(a, "xyxy", "cxcywh"), "area": ops.box_area(a),
        "clip": ops.clip_boxes_to_image(a, (6, 6)), "giou_loss": ops.generalized_box_iou_loss(a, b, reduction="sum"),
        "diou_loss": ops.distance_box_iou_loss(a, b), "roi_align": ops.roi_align(maps, rois, (3, 3), 0.5, 2),
        "aligned": ops.roi_align(maps, rois, (3, 3), 0.5, -1, True),
        "focal": ops.sigmoid_focal_loss(scores, (scores.detach() > 0).float(), reduction="sum"),
    }  # fmt: skip
    sum(value.sum() for value in found.values()).backward()
    return found | {
        "small": ops.remove_small_boxes(b, 4), "masks": ops.masks_to_boxes(image > 250), "gradient boxes": a.grad,
        "gradient maps": maps.grad,
    }  # fmt: skip


def _pictures(image: Any, folder: Path) -> dict[str, Any]:
    """Return the pixels of pictures that torchvision.utils makes, in files too."""
    import torch  # noqa: TID251 - xgrad, or PyTorch
    from PIL import Image
    from torchvision import datasets, transforms, utils

    many = torch.stack([image, image.flip(-1), image.flip(-2)])
    boxes = torch.tensor([[1, 2, 8, 9], [0, 0, 5, 12]])
    utils.save_image(many.float() / 255, folder / "grid.png", nrow=2, padding=1, normalize=True)
    data = datasets.FakeData(4, (3, 8, 8), 3, transforms.ToTensor())
    x, label = next(iter(torch.utils.data.DataLoader(data, batch_size=4)))
    assert (x.shape, x.dtype, label.shape) == ((4, 3, 8, 8), torch.float32, (4,))
    return {
        "grid": utils.make_grid(many, nrow=2), "normalized": utils.make_grid(many.float(), normalize=True),
        "each": utils.make_grid(many.float(), normalize=True, scale_each=True, pad_value=0.5),
        "file": np.array(Image.open(folder / "grid.png")),
        "boxes": utils.draw_bounding_boxes(image, boxes, ["a", "b"], "red"),
        "masks": utils.draw_segmentation_masks(image, image[:2] > 128, alpha=0.6, colors=["red", "blue"]),
        "flow": utils.flow_to_image(image[:2].float() - 100),
    }  # fmt: skip


_FUNCTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "transforms.v2.functional: pixels": _geometry,
    "transforms.v2.functional: colours": _colour,
    "transforms.v2: classes, tv_tensors": _transforms,
    "ops: boxes, roi_align, losses": _boxes,
    "utils, FakeData": _pictures,
}
CASES: dict[str, Any] = {**_MODELS, **_FUNCTIONS}
SMALL = list(_FUNCTIONS)


def measured(name: str, folder: Path, first: bool) -> tuple[list[str], dict[str, Any]]:
    """Measure one model, or some functions."""
    import torch  # noqa: TID251 - xgrad, or PyTorch
    import torchvision

    if name in _MODELS:
        size, options = _MODELS[name]
        make: Any = torchvision.models
        for part in name.split("."):
            make = getattr(make, part)
        return measure(make(weights=None, num_classes=5, **options), size, folder / f"{name}.pt", first)
    image = torch.from_numpy(_image(3, 13, 16))
    arguments = (image, folder) if name.startswith("utils") else (image,)
    found = _FUNCTIONS[name](*arguments)
    return ["", f"{len(found)} results"], {
        key: value if isinstance(value, np.ndarray) else value.detach().numpy() for key, value in found.items()
    }
