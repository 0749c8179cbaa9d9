"""Packages of the index, unmodified, on PyTorch and on xgrad: the numbers of a small use of each.

    pip install --no-deps --target DIR einops torchdiffeq gpytorch linear_operator ...
    python -m tests.programs.packages DIR [--borrow] [NAME ...]

Each use runs in two processes, one of which begins with `xgrad.as_torch()`.  No test needs the packages.
"""

import argparse
import json
import subprocess
import sys
import warnings

import numpy as np

USES = {}


def use(function):
    """Enter the use of a package: `function(torch)` returns numbers."""
    USES[function.__name__] = function
    return function


def normal(torch, *shape, seed=0):
    return torch.from_numpy(np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32))


def whole(torch, high, *shape, seed=0):
    return torch.from_numpy(np.random.default_rng([seed, high, *shape]).integers(0, high, shape))


def weighted(torch, module):
    state = module.state_dict()
    for i, (name, p) in enumerate(module.named_parameters()):
        fan = int(np.prod(p.shape[1:])) or 1
        value = np.random.default_rng([i, *p.shape]).uniform(-1, 1, tuple(p.shape)) / fan**0.5
        state[name] = torch.from_numpy(value.astype(np.float32))
    module.load_state_dict(state)
    return module


def net(torch, inside=3, outside=1):
    nn = torch.nn
    return weighted(torch, nn.Sequential(nn.Linear(inside, 8), nn.Tanh(), nn.Linear(8, outside)))


def train(optimizer, loss_of, steps=3):
    losses = []
    for i in range(steps):
        optimizer.zero_grad()
        loss = loss_of(i)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@use
def einops(torch):
    from einops import einsum, rearrange, reduce, repeat
    from einops.layers.torch import Rearrange, Reduce

    layers = torch.nn.Linear(8, 12), Rearrange("b (h d) -> b h d", h=3), Reduce("b h d -> b h", "mean")
    model = weighted(torch, torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = train(optimizer, lambda i: (model(normal(torch, 4, 8, seed=i)) ** 2).mean())
    x = normal(torch, 2, 3, 4, 5)
    return [
        *losses,
        rearrange(x, "a b (c d) e -> b (a c) (d e)", d=2).std().item(),
        reduce(x, "a b c e -> a e", "max").sum().item(),
        repeat(x, "a b c e -> a (k b) c e", k=2).shape[1],
        einsum(x, x, "a b c e, a b c f -> e f").sum().item(),
    ]


@use
def x_transformers(torch):
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=16, depth=2, heads=2, attn_dim_head=8, rotary_pos_emb=True)
    model = weighted(torch, TransformerWrapper(num_tokens=13, max_seq_len=8, attn_layers=layers))
    wrapper = AutoregressiveWrapper(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return train(optimizer, lambda i: wrapper(whole(torch, 13, 2, 8, seed=i)))


@use
def torchdiffeq(torch):
    from torchdiffeq import odeint, odeint_adjoint

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(torch, 2, 2)

        def forward(self, t, y):
            return self.net(y)

    field, t = Field(), torch.linspace(0, 1, 4)
    optimizer = torch.optim.SGD(field.parameters(), lr=0.05)
    close = {"rtol": 1e-4, "atol": 1e-4}
    solvers = (
        lambda x: odeint(field, x, t, method="rk4"),
        lambda x: odeint_adjoint(field, x, t, **close),
        lambda x: odeint(field, x, t, method="dopri5", **close),
    )
    losses = []
    for solve in solvers:
        losses += train(optimizer, lambda i, solve=solve: solve(normal(torch, 3, 2, seed=i))[-1].pow(2).mean())
    return losses


@use
def gpytorch(torch):
    import gpytorch

    x = torch.linspace(0, 1, 12)
    y = torch.sin(6 * x)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model = Model()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = train(optimizer, lambda i: -evidence(model(x), y), 5)
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        guess = likelihood(model(torch.tensor([0.25, 0.9])))
    return losses + guess.mean.tolist() + guess.variance.tolist()


@use
def higher(torch):
    import higher

    model = net(torch)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(i):
        with higher.innerloop_ctx(model, inner, copy_initial_weights=False) as (fast, inside):
            for _ in range(2):
                inside.step((fast(normal(torch, 4, 3, seed=i)) - normal(torch, 4, 1, seed=i)).pow(2).mean())
            return (fast(normal(torch, 4, 3, seed=i + 9)) - normal(torch, 4, 1, seed=i + 9)).pow(2).mean()

    return train(torch.optim.Adam(model.parameters(), lr=0.05), loss_of)


@use
def geoopt(torch):
    import geoopt

    point = geoopt.ManifoldParameter(geoopt.Stiefel().projx(normal(torch, 5, 2)), manifold=geoopt.Stiefel())
    a = normal(torch, 5, 5)
    a = a @ a.T
    losses = train(geoopt.optim.RiemannianAdam([point], lr=0.05), lambda i: -(point.T @ a @ point).trace(), 4)
    ball = geoopt.PoincareBall()
    x, y = (ball.expmap0(0.1 * normal(torch, 4, 3, seed=s)) for s in (0, 2))
    return losses + ball.dist(x, y).tolist()


@use
def backpack(torch):
    from backpack import backpack, extend
    from backpack.extensions import BatchGrad, BatchL2Grad, DiagGGNExact, SumGradSquared, Variance

    nn = torch.nn
    layers = nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)
    model = extend(weighted(torch, nn.Sequential(*layers)))
    loss = extend(nn.CrossEntropyLoss())(model(normal(torch, 4, 1, 6, 6)), whole(torch, 3, 4))
    with backpack(BatchGrad(), Variance(), DiagGGNExact(), SumGradSquared(), BatchL2Grad()):
        loss.backward()
    found = [loss.item()]
    for p in model.parameters():
        parts = p.grad.pow(2), p.grad_batch.pow(2), p.variance, p.diag_ggn_exact, p.sum_grad_squared, p.batch_l2
        found += [part.sum().item() for part in parts]
    return found


@use
def pytorch_msssim(torch):
    from pytorch_msssim import SSIM

    y = normal(torch, 1, 3, 32, 32).sigmoid()
    x = normal(torch, 1, 3, 32, 32, seed=2).sigmoid().requires_grad_()
    score = SSIM(data_range=1.0, channel=3)
    return train(torch.optim.Adam([x], lr=0.05), lambda i: 1 - score(x, y))


@use
def entmax(torch):
    import entmax

    x, w = normal(torch, 3, 6).requires_grad_(), normal(torch, 3, 6, seed=4)
    found = []
    for f in (entmax.sparsemax, entmax.entmax15, entmax.entmax_bisect, entmax.sparsemax_bisect):
        loss = (f(x, dim=-1) * w).sum()
        found += [loss.item(), *torch.autograd.grad(loss, x)[0].flatten().tolist()]
    return found


@use
def torchmetrics(torch):
    import torchmetrics

    metrics = [
        torchmetrics.Accuracy(task="multiclass", num_classes=3),
        torchmetrics.F1Score(task="multiclass", num_classes=3, average="macro"),
        torchmetrics.AUROC(task="multiclass", num_classes=3),
    ]
    for i in range(3):
        for metric in metrics:
            metric.update(normal(torch, 8, 3, seed=i).softmax(-1), whole(torch, 3, 8, seed=i))
    return [metric.compute().item() for metric in metrics]


@use
def lion_pytorch(torch):
    from lion_pytorch import Lion

    model = net(torch)
    optimizer = Lion(model.parameters(), lr=1e-2, weight_decay=0.1)
    return train(optimizer, lambda i: (model(normal(torch, 4, 3, seed=i)) - 1).pow(2).mean(), 4)


@use
def rotary_embedding_torch(torch):
    from rotary_embedding_torch import RotaryEmbedding

    q = normal(torch, 1, 2, 5, 8).requires_grad_()
    loss = (RotaryEmbedding(dim=4).rotate_queries_or_keys(q) * normal(torch, 1, 2, 5, 8, seed=3)).sum()
    loss.backward()
    return [loss.item(), *q.grad.flatten().tolist()]


@use
def ema_pytorch(torch):
    from ema_pytorch import EMA

    model = net(torch)
    average = EMA(model, beta=0.9, update_after_step=1, update_every=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for i in range(5):
        found += train(optimizer, lambda k, i=i: (model(normal(torch, 4, 3, seed=i)) - 1).pow(2).mean(), 1)
        average.update()
        found.append(average(normal(torch, 4, 3)).sum().item())
    return found


@use
def vector_quantize_pytorch(torch):
    from vector_quantize_pytorch import FSQ

    x = normal(torch, 2, 6, 3).requires_grad_()
    y, index = FSQ(levels=[5, 3, 3])(x)
    loss = (y * normal(torch, 2, 6, 3, seed=1)).sum()
    loss.backward()
    return [loss.item(), *x.grad.flatten().tolist(), *index.flatten().tolist()]


@use
def accelerate(torch):
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True), net(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(normal(torch, 12, 3)), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    losses = []
    for (x,) in data:
        optimizer.zero_grad()
        loss = (model(x) - 1).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


@use
def torchpme(torch):
    import torchpme

    places = torch.tensor([[0.0, 0, 0], [0.5, 0.5, 0.5]]).requires_grad_()
    charges = torch.tensor([[1.0], [-1.0]])
    calculator = torchpme.EwaldCalculator(torchpme.CoulombPotential(smearing=0.2), lr_wavelength=0.1)
    potential = calculator.forward(charges, torch.eye(3), places, torch.tensor([[0, 1]]), torch.tensor([0.866]))
    loss = (potential * charges).sum()
    loss.backward()
    return [loss.item(), *places.grad.flatten().tolist()]


@use
def unfoldNd(torch):
    import unfoldNd

    x = normal(torch, 1, 2, 6, 6).requires_grad_()
    loss = unfoldNd.UnfoldNd((3, 3))(x).pow(2).sum()
    loss.backward()
    return [loss.item(), *x.grad.flatten().tolist()]


def run_here(folder, name, library, borrow):
    warnings.simplefilter("ignore")
    sys.path.insert(0, folder)
    if library == "xgrad":
        import xgrad

        xgrad.as_torch(borrow=borrow)
    import torch

    print("RESULT", json.dumps(USES[name](torch)))


def run(folder, name, library, borrow):
    """Run a use in a process; return its numbers, or the last line of its error."""
    command = [sys.executable, "-m", __spec__.name, folder, name, "--library", library, *["--borrow"] * borrow]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    return np.array(json.loads(lines[0][7:])) if lines else (done.stderr.splitlines() or ["nothing"])[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--library", choices=("torch", "xgrad"))
    parser.add_argument("--borrow", action="store_true")
    given = parser.parse_args()
    if given.library:
        run_here(given.folder, given.names[0], given.library, given.borrow)
        return
    for name in given.names or USES:
        theirs, ours = (run(given.folder, name, library, given.borrow) for library in ("torch", "xgrad"))
        if isinstance(theirs, str) or isinstance(ours, str):
            print(f"{name:25} torch: {theirs if isinstance(theirs, str) else 'runs'}; xgrad: {ours}", flush=True)
        else:
            gap = abs(ours - theirs).max() / abs(theirs).max()
            print(f"{name:25} {len(theirs):4} numbers, largest difference {gap:.1e} of the largest", flush=True)


if __name__ == "__main__":
    main()
