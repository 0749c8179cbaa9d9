"""diffusers: models and schedulers, in numbers."""

import tempfile
from typing import Any

from .small_models import filled, normal, numbers_of, tokens, torch, trained

TITLE = "diffusers {version}"
HEAD = """\
Shown are how many numbers are compared (losses, sums of gradients' absolute values, norms, results), and the first.
Models are saved and read again, and sampled by DDPM and DDIM with the same noise.

| case | numbers | PyTorch's first | xgrad |
| --- | --- | --- | --- |"""


_UNET = {"sample_size": 8, "block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}


def _schedulers() -> list[Any]:
    import diffusers

    names = ("DDPM", "DDIM", "EulerDiscrete", "EulerAncestralDiscrete", "DPMSolverMultistep", "PNDM", "UniPCMultistep")
    names += ("HeunDiscrete", "LMSDiscrete")
    return [getattr(diffusers, f"{name}Scheduler")(num_train_timesteps=50) for name in names]


def _sampled(scheduler: Any, predicted: Any, start: Any, steps: int = 5) -> list[float]:
    """Return the sample's size after each step, with noise that does not depend on the generator."""
    from diffusers.utils import torch_utils

    kind = type(scheduler)
    module = __import__(kind.__module__, fromlist=["randn_tensor"])
    noises = iter(range(100, 200))

    def noise(shape: Any, *args: Any, **options: Any) -> Any:
        return normal(*shape, seed=next(noises))

    before = getattr(module, "randn_tensor", torch_utils.randn_tensor)
    module.randn_tensor = noise
    try:
        scheduler.set_timesteps(steps)
        x, found = start * scheduler.init_noise_sigma, []
        for t in scheduler.timesteps[: 2 * steps]:
            with torch.no_grad():
                x = scheduler.step(predicted(scheduler.scale_model_input(x, t), t), t, x).prev_sample
            found += [float(t), float(x.sum()), float(x.abs().sum())]
    finally:
        module.randn_tensor = before
    return found


def _taught(model: Any, predicted: Any, clean: Any) -> list[float]:
    """Return numbers of three training steps, and of sampling with two schedulers."""
    from diffusers import DDIMScheduler, DDPMScheduler

    scheduler, noise = DDPMScheduler(num_train_timesteps=50), normal(*clean.shape, seed=7)
    times = torch.tensor([3, 41])
    noisy = scheduler.add_noise(clean, noise, times)
    found = trained(model, lambda: torch.nn.functional.mse_loss(predicted(noisy, times), noise))
    model.eval()
    for made in (scheduler, DDIMScheduler(num_train_timesteps=50)):
        found += _sampled(made, predicted, normal(*clean.shape, seed=8))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = type(model).from_pretrained(folder)
    return [*found, sum(float(p.detach().abs().sum()) for p in again.parameters())]


def unet() -> list[float]:
    """Train and sample a UNet2DModel."""
    from diffusers import UNet2DModel

    model = filled(UNet2DModel(
        **_UNET, in_channels=3, out_channels=3, attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ), scale=0.1)  # fmt: skip
    return _taught(model, lambda x, t: model(x, t).sample, normal(2, 3, 8, 8))


def unet_condition() -> list[float]:
    """Train and sample a UNet2DConditionModel."""
    from diffusers import UNet2DConditionModel

    model = filled(UNet2DConditionModel(
        **_UNET, in_channels=4, out_channels=4, cross_attention_dim=12, attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ), scale=0.1)  # fmt: skip
    text = normal(2, 5, 12, seed=3)
    model.enable_gradient_checkpointing()
    return _taught(model, lambda x, t: model(x, t, encoder_hidden_states=text).sample, normal(2, 4, 8, 8))


def transformer() -> list[float]:
    """Train and sample a DiT."""
    from diffusers import DiTTransformer2DModel

    model = filled(DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8,
        patch_size=2, num_embeds_ada_norm=50, norm_num_groups=4,
    ), scale=0.1)  # fmt: skip
    for block in model.transformer_blocks:
        block.norm1.emb.class_embedder.dropout_prob = 0.0
    classes = torch.tensor([1, 7])
    return _taught(
        model, lambda x, t: model(x, t.expand(2) if t.ndim == 0 else t, class_labels=classes).sample, normal(2, 4, 8, 8)
    )


def autoencoder() -> list[float]:
    """Train an AutoencoderKL; sample its distribution with given noise; decode in slices and tiles."""
    from diffusers import AutoencoderKL

    model = filled(AutoencoderKL(
        in_channels=3, out_channels=3, block_out_channels=(8, 16), layers_per_block=1, latent_channels=4,
        norm_num_groups=4, sample_size=16, down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    ), scale=0.1)  # fmt: skip
    x, noise = normal(2, 3, 16, 16), normal(2, 4, 8, 8, seed=5)

    def loss() -> Any:
        latent = model.encode(x).latent_dist
        made = model.decode(latent.mean + latent.std * noise).sample
        return torch.nn.functional.mse_loss(made, x) + 1e-3 * latent.kl().mean()

    found = trained(model, loss)
    model.enable_slicing()
    with torch.no_grad():
        found.append(float(model.decode(noise).sample.abs().sum()))
        model.enable_tiling()
        found.append(float(model.decode(normal(1, 4, 12, 12)).sample.abs().sum()))
    return found


def schedulers() -> list[float]:
    """Sample with each scheduler from a model that is a formula."""
    found = []
    for scheduler in _schedulers():
        found += _sampled(scheduler, lambda x, t: torch.tanh(x) * (t + 1) / 50, normal(2, 3, 4, 4))
    return found


def pipeline_image() -> list[float]:
    """Sample with a pipeline of a folder, and average weights."""
    from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel
    from diffusers.training_utils import EMAModel
    from diffusers.utils import torch_utils

    model = filled(UNet2DModel(
        **_UNET, in_channels=3, out_channels=3, attention_head_dim=4, down_block_types=("DownBlock2D",) * 2,
        up_block_types=("UpBlock2D",) * 2,
    ), scale=0.1)  # fmt: skip
    averaged = EMAModel(model.parameters(), decay=0.9)
    trained(model, lambda: model(normal(2, 3, 8, 8), 3).sample.square().mean())
    averaged.step(model.parameters())
    averaged.copy_to(model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        DDIMPipeline(model, DDIMScheduler(num_train_timesteps=50)).save_pretrained(folder)
        made = DDIMPipeline.from_pretrained(folder)
    made.set_progress_bar_config(disable=True)
    module = __import__(DDIMPipeline.__module__, fromlist=["randn_tensor"])
    before, module.randn_tensor = module.randn_tensor, lambda shape, **options: normal(*shape)
    try:
        images = made(batch_size=2, num_inference_steps=5, output_type="np").images
    finally:
        module.randn_tensor = before
    assert before is torch_utils.randn_tensor
    return [*map(float, images.sum((1, 2, 3))), float(images.std())]


def clip_conditioned() -> list[float]:
    """Encode text by CLIP and sample a UNet with guidance, as Stable Diffusion's loop does."""
    from diffusers import EulerDiscreteScheduler, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    text = filled(CLIPTextModel(CLIPTextConfig(
        vocab_size=61, hidden_size=12, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=16, bos_token_id=1, eos_token_id=2, pad_token_id=0, projection_dim=12,
    )))  # fmt: skip
    model = filled(UNet2DConditionModel(
        **_UNET, in_channels=4, out_channels=4, cross_attention_dim=12, attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ), scale=0.1)  # fmt: skip
    with torch.no_grad():
        hidden = text.eval()(tokens(2, 7)).last_hidden_state

    def guided(x: Any, t: Any) -> Any:
        without, given = model(torch.cat([x] * 2), t, encoder_hidden_states=hidden).sample.chunk(2)
        return without + 3.0 * (given - without)

    return _sampled(EulerDiscreteScheduler(num_train_timesteps=50), guided, normal(1, 4, 8, 8))


CASES = {
    "UNet2DModel": unet,
    "UNet2DConditionModel, checkpointing": unet_condition,
    "DiTTransformer2DModel": transformer,
    "AutoencoderKL: slices, tiles": autoencoder,
    "nine schedulers, 5 steps each": schedulers,
    "DDIMPipeline of a folder, EMAModel": pipeline_image,
    "CLIP's text, a guided UNet, Euler": clip_conditioned,
}
measured = numbers_of(CASES)
