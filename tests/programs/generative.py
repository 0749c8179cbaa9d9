"""Generative models: the noise is NumPy's."""

import math

from .harness import normal, numbers, program, weighted, whole


@program
def variational_autoencoder(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.ModuleDict({
        "encoder": nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)),
        "decoder": nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 6)),
    }))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    def step(x, noise):
        mean, log_variance = model["encoder"](x).chunk(2, dim=-1)
        z = mean + noise * torch.exp(0.5 * log_variance)
        reconstruction = nn.functional.binary_cross_entropy_with_logits(model["decoder"](z), x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        loss = (reconstruction + divergence) / x.shape[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    draws = ((numbers(4, 6, seed=i, low=0.0), normal(4, 2, seed=i)) for i in range(4))
    return [step(*map(torch.from_numpy, draw)).item() for draw in draws]


def _pair(torch):
    nn = torch.nn
    generator = weighted(torch, nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)), 1)
    critic = weighted(torch, nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1)), 2)
    return generator, critic


@program
def gan(torch, compile):
    generator, critic = _pair(torch)
    og = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.999))
    oc = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.999))
    loss_of = torch.nn.BCEWithLogitsLoss()

    def step(real, noise):
        fake = generator(noise)
        oc.zero_grad()
        critic_loss = loss_of(critic(real), torch.ones(4, 1)) + loss_of(critic(fake.detach()), torch.zeros(4, 1))
        critic_loss.backward()
        oc.step()
        og.zero_grad()
        loss = loss_of(critic(fake), torch.ones(4, 1))
        loss.backward()
        og.step()
        return torch.stack([critic_loss.detach(), loss.detach()])

    step, found = compile(step), []
    for i in range(4):
        found += step(torch.from_numpy(normal(4, 3, seed=i)), torch.from_numpy(normal(4, 2, seed=i))).tolist()
    return found


@program
def wgan_gp(torch, compile):
    generator, critic = _pair(torch)
    oc = torch.optim.RMSprop(critic.parameters(), lr=0.01)

    def step(real, noise, mix):
        fake = generator(noise).detach()
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        oc.zero_grad()
        loss.backward()
        oc.step()
        return torch.stack([loss.detach(), penalty.detach()])

    step, found = compile(step), []
    for i in range(4):
        draw = normal(4, 3, seed=i), normal(4, 2, seed=i), numbers(4, 1, seed=i, low=0.0)
        found += step(*map(torch.from_numpy, draw)).tolist()
    return found


@program
def diffusion(torch, compile):
    nn = torch.nn
    steps = 10
    model = weighted(torch, nn.Sequential(nn.Linear(7, 16), nn.SiLU(), nn.Linear(16, 3)))
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.2, steps), dim=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def embedding(t):
        angle = t[:, None].float() * torch.exp(-math.log(100.0) * torch.arange(2) / 2)
        return torch.cat([angle.sin(), angle.cos()], dim=-1)

    def step(x, noise, t):
        a = kept[t][:, None]
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        loss = nn.functional.mse_loss(model(torch.cat([noisy, embedding(t)], dim=-1)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    draws = ((normal(4, 3, seed=i), normal(4, 3, seed=i + 9), whole(steps, 4, seed=i)) for i in range(4))
    found = [step(*map(torch.from_numpy, draw)).item() for draw in draws]
    x = torch.from_numpy(normal(2, 3, seed=77))
    with torch.no_grad():  # DDIM
        for t in reversed(range(0, steps, 3)):
            noise = model(torch.cat([x, embedding(torch.full((2,), t))], dim=-1))
            clean = (x - (1 - kept[t]).sqrt() * noise) / kept[t].sqrt()
            before = kept[t - 3] if t >= 3 else torch.tensor(1.0)
            x = before.sqrt() * clean + (1 - before).sqrt() * noise
    return found + x.flatten().tolist()


@program
def coupling_flow(torch, compile):
    nn = torch.nn
    nets = weighted(torch, nn.ModuleList(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4)) for _ in range(3)))
    optimizer = torch.optim.Adam(nets.parameters(), lr=0.02)

    def step(x):
        log_det = torch.zeros(x.shape[0])
        for net in nets:
            a, b = x[:, :2], x[:, 2:]
            shift, scale = net(a).chunk(2, dim=1)
            scale = torch.tanh(scale)
            x = torch.cat([b * scale.exp() + shift, a], dim=1)
            log_det = log_det + scale.sum(1)
        loss = -(-0.5 * (x**2).sum(1) - 2 * math.log(2 * math.pi) + log_det).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(torch.from_numpy(normal(6, 4, seed=i))).item() for i in range(4)]


@program
def score_matching(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    def step(x):
        x = x.requires_grad_()
        score = model(x)
        trace = 0
        for i in range(2):
            (row,) = torch.autograd.grad(score[:, i].sum(), x, create_graph=True)
            trace = trace + row[:, i]
        loss = (trace + 0.5 * (score**2).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward(inputs=list(model.parameters()))
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(torch.from_numpy(normal(6, 2, seed=i))).item() for i in range(4)]


@program
def vector_quantized_autoencoder(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.ModuleDict({"encoder": nn.Linear(6, 4), "decoder": nn.Linear(4, 6)}))
    codes = torch.from_numpy(normal(5, 4))
    counts, sums = torch.ones(5), codes.clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    def step(x):
        z = model["encoder"](x)
        index = torch.cdist(z.detach(), codes).argmin(dim=1)
        q = codes[index]
        straight = z + (q - z).detach()
        loss = nn.functional.mse_loss(model["decoder"](straight), x) + 0.25 * nn.functional.mse_loss(z, q)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            hot = nn.functional.one_hot(index, 5).to(z.dtype)
            counts.mul_(0.9).add_(hot.sum(0), alpha=0.1)
            sums.mul_(0.9).add_(hot.T @ z.detach(), alpha=0.1)
            codes.copy_(sums / counts[:, None])
        return loss.detach()

    step = compile(step)
    return [step(torch.from_numpy(normal(8, 6, seed=i))).item() for i in range(4)] + codes.flatten().tolist()


@program(compiled=False)
def energy_based_model(torch, compile):
    nn = torch.nn
    energy = weighted(torch, nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 1)))
    optimizer = torch.optim.Adam(energy.parameters(), lr=0.02)
    found = []
    for i in range(3):
        x = torch.from_numpy(normal(6, 2, seed=i)).requires_grad_()
        for p in energy.parameters():
            p.requires_grad_(False)
        for k in range(3):  # Langevin
            energy(x).sum().backward()
            x.data.add_(x.grad, alpha=-0.1).add_(torch.from_numpy(normal(6, 2, seed=100 + 10 * i + k)), alpha=0.01)
            x.grad.zero_()
        for p in energy.parameters():
            p.requires_grad_(True)
        loss = energy(torch.from_numpy(normal(6, 2, seed=i + 50))).mean() - energy(x.detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found += [loss.item(), x.detach().sum().item()]
    return found


@program
def masked_convolutions_over_pixels(torch, compile):
    nn = torch.nn

    class Masked(nn.Conv2d):
        def __init__(self, kind, *args, **options):
            super().__init__(*args, **options)
            mask = torch.ones_like(self.weight)
            mask[:, :, 1, 1 + (kind == "B") :] = 0
            mask[:, :, 2:] = 0
            self.register_buffer("mask", mask)

        def forward(self, x):
            return nn.functional.conv2d(x, self.weight * self.mask, self.bias, padding=self.padding)

    model = weighted(torch, nn.Sequential(Masked("A", 1, 4, 3, padding=1), nn.ReLU(), Masked("B", 4, 1, 3, padding=1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    def step(x):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(torch.from_numpy(whole(2, 2, 1, 6, 6, seed=i).astype("float32"))).item() for i in range(4)]


@program
def style_transfer(torch, compile):
    nn = torch.nn
    features = weighted(torch, nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))).requires_grad_(False)
    image = torch.from_numpy(normal(1, 3, 8, 8)).requires_grad_()

    def gram(x):
        x = x.flatten(2)
        return x @ x.mT / x.shape[-1]

    with torch.no_grad():
        style = gram(features(torch.from_numpy(normal(1, 3, 8, 8, seed=1))))
    optimizer = torch.optim.Adam([image], lr=0.05)

    def step():
        optimizer.zero_grad()
        variation = (image[..., 1:] - image[..., :-1]).abs().mean() + (
            image[..., 1:, :] - image[..., :-1, :]
        ).abs().mean()
        loss = nn.functional.mse_loss(gram(features(image)), style) + 0.1 * variation
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step().item() for _ in range(4)]


@program
def contrastive_pairs(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.ModuleDict({"image": nn.Linear(6, 4), "text": nn.Linear(5, 4)}))
    scale = nn.Parameter(torch.tensor(math.log(10.0)))
    optimizer = torch.optim.AdamW([*model.parameters(), scale], lr=0.02)

    def step(a, b):
        a = nn.functional.normalize(model["image"](a), dim=-1)
        b = nn.functional.normalize(model["text"](b), dim=-1)
        logits = scale.exp() * a @ b.T
        y = torch.arange(len(a))
        loss = (nn.functional.cross_entropy(logits, y) + nn.functional.cross_entropy(logits.T, y)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            scale.clamp_(0, math.log(100.0))
        return loss.detach()

    step = compile(step)
    draws = ((normal(6, 6, seed=i), normal(6, 5, seed=i)) for i in range(4))
    return [step(*map(torch.from_numpy, draw)).item() for draw in draws]
