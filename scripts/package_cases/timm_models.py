"""Models of timm, one of each family, small where they can be."""

from pathlib import Path
from typing import Any

import numpy as np

from .image_models import measure

TITLE = "timm {version}"
HEAD = """\
Each model is made by `create_model` and loads a state_dict that PyTorch saved; it is in evaluation mode.  Compared are
the tables that a model computes when it is made, its result, the gradients of all weights and of the image, and all
weights after a step of SGD with momentum.  Shown are the number of weights, PyTorch's loss, and the sum of all
gradients' absolute values.  Optimizers are compared by the weights after three steps, schedules by their rates.

| model | weights | PyTorch's loss, gradients | xgrad |
| --- | --- | --- | --- |"""

_THIN = {"embed_dim": 48, "depth": 2, "num_heads": 2}
# The name → (size of the image, options of `create_model`)
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "resnet10t": (64, {}),
    "resnext26ts": (64, {}),
    "seresnext26t_32x4d": (64, {}),
    "resnetv2_18": (64, {}),
    "res2net50_26w_4s": (64, {}),
    "skresnet18": (64, {}),
    "ecaresnet26t": (64, {}),
    "resnest14d": (64, {}),
    "test_efficientnet": (64, {}),
    "test_byobnet": (64, {}),
    "test_nfnet": (64, {}),
    "test_mambaout": (64, {}),
    "test_maxvit": (64, {"img_size": 64}),
    "test_coatnet": (64, {"img_size": 64}),
    "test_vit_relpos": (64, {"img_size": 64}),
    "efficientnet_b0": (64, {}),
    "mobilenetv3_small_050": (64, {}),
    "mobilenetv4_conv_small_035": (64, {}),
    "mnasnet_small": (64, {}),
    "lcnet_035": (64, {}),
    "ghostnet_050": (64, {}),
    "rexnetr_200": (64, {}),
    "convnext_atto": (64, {"depths": (1, 1, 2, 1), "dims": (8, 16, 24, 32)}),
    "convnextv2_atto": (64, {"depths": (1, 1, 2, 1), "dims": (8, 16, 24, 32)}),
    "vit_tiny_patch16_224": (64, {**_THIN, "img_size": 64}),
    "deit_tiny_distilled_patch16_224": (64, {**_THIN, "img_size": 64}),
    "beit_base_patch16_224": (64, {**_THIN, "img_size": 64}),
    "eva02_tiny_patch14_224": (56, {"embed_dim": 48, "depth": 2, "num_heads": 2, "img_size": 56}),
    "cait_xxs24_224": (64, {**_THIN, "img_size": 64}),
    "swin_tiny_patch4_window7_224": (64, {
        "img_size": 64, "window_size": 4, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4),
    }),
    "swinv2_tiny_window8_256": (64, {
        "img_size": 64, "window_size": 4, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4),
    }),
    "mixer_s32_224": (64, {"img_size": 64}),
    "resmlp_12_224": (64, {"img_size": 64}),
    "gmlp_ti16_224": (64, {"img_size": 64}),
    "convmixer_768_32": (64, {}),
    "regnetx_002": (64, {}),
    "regnety_002": (64, {}),
    "densenet121": (64, {"block_config": (2, 2, 2, 2)}),
    "inception_v3": (80, {}),
    "inception_next_atto": (64, {}),
    "xception41": (64, {}),
    "hrnet_w18_small": (64, {}),
    "dla46_c": (64, {}),
    "dpn48b": (64, {}),
    "cspresnet50": (64, {}),
    "nf_resnet26": (64, {}),
    "nfnet_l0": (64, {}),
    "repvgg_a0": (64, {}),
    "levit_128s": (64, {"img_size": 64}),
    "coat_lite_tiny": (64, {"img_size": 64}),
    "pit_ti_224": (64, {"img_size": 64}),
    "twins_svt_small": (64, {"img_size": 64, "depths": (1, 1, 1, 1)}),
    "maxvit_pico_rw_256": (64, {"img_size": 64}),
    "coatnet_pico_rw_224": (64, {"img_size": 64}),
    "edgenext_xx_small": (64, {}),
    "mobilevit_xxs": (64, {}),
    "poolformer_s12": (64, {}),
    "pvt_v2_b0": (64, {}),
    "mvitv2_tiny": (64, {"img_size": 64}),
    "volo_d1_224": (64, {"img_size": 64}),
    "xcit_nano_12_p16_224": (64, {"depth": 2, "img_size": 64}),
    "visformer_tiny": (64, {"img_size": 64}),
    "tnt_s_legacy_patch16_224": (64, {"img_size": 64, "depth": 2}),
    "crossvit_tiny_240": (120, {"img_size": 120}),
    "gcvit_xxtiny": (224, {}),
    "focalnet_tiny_srf": (64, {}),
    "davit_tiny": (64, {"depths": (1, 1, 1, 1)}),
    "fastvit_t8": (64, {}),
    "repvit_m0_9": (64, {}),
    "efficientformer_l1": (224, {}),
    "tiny_vit_5m_224": (64, {}),
    "sequencer2d_s": (64, {"img_size": 64, "layers": (1, 1, 1, 1)}),
    "hgnetv2_b0": (64, {}),
    "starnet_s1": (64, {}),
    "nest_tiny": (64, {"img_size": 64}),
    "hiera_tiny_224": (64, {"img_size": 64, "stages": (1, 1, 1, 1)}),
    "efficientvit_b0": (64, {}),
}  # fmt: skip


_OPTIMIZERS = """
    sgd momentum sgdw sgdp adam adamw nadam nadamw radam adamax adamp adabelief adadelta adagrad adafactor adafactorbv
    adopt adan lamb lambc larc lars laprop lion madgrad mars muon novograd rmsprop rmsproptf cadamw clion csgdw
"""
_SCHEDULES = "cosine tanh step multistep plateau poly"


def _optimizers() -> dict[str, Any]:
    """Return weights after three steps of each optimizer."""
    import torch  # noqa: TID251 - xgrad, or PyTorch
    from timm.optim import create_optimizer_v2

    found = {}
    for name in _OPTIMIZERS.split():
        random = np.random.RandomState(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.from_numpy(random.randn(*p.shape).astype("float32")))
        optimizer = create_optimizer_v2(model, opt=name, lr=0.01, weight_decay=0.05)
        x = torch.from_numpy(random.randn(5, 4).astype("float32"))
        for _ in range(3):
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()
        found |= {f"{name} {key}": p.detach().numpy() for key, p in model.named_parameters()}
    return found


def _schedules() -> dict[str, Any]:
    """Return the learning rates of schedules, with warmup."""
    import torch  # noqa: TID251 - xgrad, or PyTorch
    from timm.scheduler import create_scheduler_v2

    found = {}
    for name in _SCHEDULES.split():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
        options = {"decay_milestones": (3, 6)} if name == "multistep" else {}
        schedule, epochs = create_scheduler_v2(
            optimizer, sched=name, num_epochs=8, warmup_epochs=2, decay_epochs=2, patience_epochs=1, **options
        )
        rates = []
        for epoch in range(epochs):
            schedule.step(epoch, 1.0)
            rates.append(optimizer.param_groups[0]["lr"])
        found[name] = np.array(rates)
    return found


_FUNCTIONS = {"optimizers": _optimizers, "schedules": _schedules}
CASES |= dict.fromkeys(_FUNCTIONS, (0, {}))

# Its activation is ReLU: a value that rounding moves over zero has another gradient.
TOLERANCES = {"convmixer_768_32": 1e-2}

SMALL = [
    "test_efficientnet", "test_byobnet", "test_nfnet", "test_mambaout", "test_vit_relpos", "convnext_atto",
    "vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "swin_tiny_patch4_window7_224", *_FUNCTIONS,
]  # fmt: skip


def measured(name: str, folder: Path, first: bool) -> tuple[list[str], dict[str, Any]]:
    """Measure one model."""
    import timm

    if name in _FUNCTIONS:
        found = _FUNCTIONS[name]()
        kinds = (_OPTIMIZERS if name == "optimizers" else _SCHEDULES).split()
        return ["", f"{len(kinds)} of them"], found
    size, options = CASES[name]
    return measure(timm.create_model(name, num_classes=5, **options), size, folder / f"{name}.pt", first)
