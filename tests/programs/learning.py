"""How people train: clipping, accumulation, groups, averages, resuming, precision, adapters, pruning, distillation."""

import copy
import io

from .harness import normal, program, weighted, whole


def _net(torch, seed=0, out=3):
    nn = torch.nn
    return weighted(torch, nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, out)), seed)


def _batches(torch, n=4):
    return [(torch.from_numpy(normal(8, 6, seed=i)), torch.from_numpy(whole(3, 8, seed=i))) for i in range(n)]


@program(compiled=False)
def accumulation_with_clipping(torch, compile):
    model = _net(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.01)
    found = []
    for i, (x, y) in enumerate(_batches(torch, 6)):
        loss = torch.nn.functional.cross_entropy(model(x), y) / 2
        loss.backward()
        found.append(loss.item())
        if i % 2:
            found.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1).item())
            optimizer.step()
            optimizer.zero_grad()
    return found


@program
def groups_and_warmup(torch, compile):
    model = _net(torch)
    optimizer = torch.optim.AdamW([
        {"params": model[0].parameters(), "lr": 0.001},
        {"params": [model[2].weight], "weight_decay": 0.5},
        {"params": [model[2].bias], "betas": (0.5, 0.9)},
    ], lr=0.05)  # fmt: skip
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: min(1.0, (epoch + 1) / 3))

    def step(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step, losses = compile(step), []
    for x, y in _batches(torch):
        losses.append(step(x, y).item())
        schedule.step()
    return losses + [group["lr"] for group in optimizer.param_groups]


@program
def moving_average(torch, compile):
    model = _net(torch)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

    def step(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.lerp_(p, 0.1)
            return torch.stack([loss.detach(), torch.nn.functional.cross_entropy(average(x), y)])

    step = compile(step)
    return [number for x, y in _batches(torch) for number in step(x, y).tolist()]


@program(compiled=False)
def stochastic_weight_averaging(torch, compile):
    model = _net(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average = torch.optim.swa_utils.AveragedModel(model)
    schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
    losses = []
    for x, y in _batches(torch, 6):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        schedule.step()
        losses += [loss.item(), torch.nn.functional.cross_entropy(average(x), y).item()]
    return losses


@program(compiled=False)
def resumed_from_a_checkpoint(torch, compile):
    losses = []

    def run(model, optimizer, batches):
        for x, y in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    model = _net(torch)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    run(model, optimizer, _batches(torch)[:2])
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 2}, file)
    file.seek(0)
    state = torch.load(file)
    model = _net(torch, seed=7)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    run(model, optimizer, _batches(torch)[state["epoch"] :])
    return losses


@program(rtol=2e-2, atol=1e-3)
def mixed_precision(torch, compile):
    model = _net(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
            assert out.dtype == torch.bfloat16
            loss = torch.nn.functional.cross_entropy(out.float(), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(x, y).item() for x, y in _batches(torch)]


@program(compiled=False)
def scaled_gradients(torch, compile):
    model = _net(torch)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=2)
    found = []
    for i, (x, y) in enumerate(_batches(torch, 6)):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y) * (float("inf") if i == 3 else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()
        found += [0.0 if i == 3 else loss.item(), scaler.get_scale()]
    return found


@program
def low_rank_adapters(torch, compile):
    nn = torch.nn

    class LoRA(nn.Module):
        def __init__(self, linear, rank):
            super().__init__()
            self.linear = linear.requires_grad_(False)
            self.a = nn.Parameter(torch.from_numpy(normal(rank, linear.in_features)))
            self.b = nn.Parameter(torch.zeros(linear.out_features, rank))

        def forward(self, x):
            return self.linear(x) + x @ self.a.T @ self.b.T

    model = _net(torch)
    for name, child in list(model.named_children()):
        if isinstance(child, nn.Linear):
            setattr(model, name, LoRA(child, 2))
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == 4
    optimizer = torch.optim.Adam(trained, lr=0.05)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(x, y).item() for x, y in _batches(torch)]


@program
def quantization_aware(torch, compile):
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.save_for_backward(x / scale)
            return (x / scale).round().clamp(-8, 7) * scale

        @staticmethod
        def backward(ctx, grad):
            (steps,) = ctx.saved_tensors
            return grad * (steps.abs() <= 8), None

    model = _net(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

    def step(x, y):
        optimizer.zero_grad()
        for layer in (0, 2):
            w = model[layer].weight
            x = torch.nn.functional.linear(x, Round.apply(w, w.detach().abs().max() / 7), model[layer].bias)
            if layer == 0:
                x = torch.relu(x)
        loss = torch.nn.functional.cross_entropy(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(x, y).item() for x, y in _batches(torch)]


@program
def distillation(torch, compile):
    teacher, student = _net(torch, 1).eval(), _net(torch, 2)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.05)

    def step(x, y):
        with torch.no_grad():
            soft = torch.softmax(teacher(x) / 2.0, dim=-1)
        out = student(x)
        loss = torch.nn.functional.cross_entropy(out, y) + 4.0 * torch.nn.functional.kl_div(
            torch.log_softmax(out / 2.0, dim=-1), soft, reduction="batchmean"
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(x, y).item() for x, y in _batches(torch)]


@program
def sharpness_aware_minimization(torch, compile):
    model = _net(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

    def step(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        parameters = list(model.parameters())
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in parameters]).norm()
            moves = [p.grad * (0.05 / norm) for p in parameters]
            for p, move in zip(parameters, moves):
                p.add_(move)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p, move in zip(parameters, moves):
                p.sub_(move)
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(x, y).item() for x, y in _batches(torch)]


@program
def pruned_by_masks(torch, compile):
    model = _net(torch)
    masks = []
    for p in model.parameters():
        if p.dim() == 2:
            threshold = p.detach().abs().flatten().kthvalue(p.numel() // 2).values
            masks.append((p, (p.detach().abs() > threshold).float()))
    for p, mask in masks:
        p.data.mul_(mask)
        p.register_hook(lambda grad, mask=mask: grad * mask)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)

    def step(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    losses = [step(x, y).item() for x, y in _batches(torch)]
    return losses + [(p == 0).sum().item() for p, _ in masks]


@program(compiled=False)
def checkpointed_blocks(torch, compile):
    from importlib import import_module

    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    nn = torch.nn
    blocks = weighted(torch, nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)))
    head = weighted(torch, nn.Linear(6, 3), 1)
    optimizer = torch.optim.Adam([*blocks.parameters(), *head.parameters()], lr=0.05)
    losses = []
    for x, y in _batches(torch):
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        loss = nn.functional.cross_entropy(head(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program(compiled=False)
def plateau_and_early_stopping(torch, compile):
    model = _net(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    found, best, waited = [], float("inf"), 0
    x, y = _batches(torch)[0]
    for _ in range(12):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step(loss.item())
        found += [loss.item(), optimizer.param_groups[0]["lr"]]
        best, waited = (loss.item(), 0) if loss.item() < best - 1e-4 else (best, waited + 1)
        if waited == 4:
            break
    return found


@program(compiled=False)
def data_loader_and_subsets(torch, compile):
    from importlib import import_module

    data = import_module(f"{torch.__name__}.utils.data")
    model = _net(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    whole_set = data.TensorDataset(torch.from_numpy(normal(20, 6)), torch.from_numpy(whole(3, 20)))
    loader = data.DataLoader(data.Subset(whole_set, range(2, 20)), batch_size=8, shuffle=False, drop_last=False)
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert len(losses) == len(loader) == 3
    return losses
