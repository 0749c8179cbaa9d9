"""Classification and regression: networks, losses, optimizers, schedules."""

from .harness import normal, numbers, program, weighted, whole


def _train(torch, compile, model, optimizer, loss_of, batches, schedule=None):
    """Train by the usual loop; return the losses."""

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step, losses = compile(step), []
    for x, y in batches:
        losses.append(step(torch.from_numpy(x), torch.from_numpy(y)).item())
        if schedule is not None:
            schedule.step()
    return losses


def _classes(n=4, rows=8, features=6, classes=3):
    return [(normal(rows, features, seed=i), whole(classes, rows, seed=i)) for i in range(n)]


@program
def mlp(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    return _train(torch, compile, model, optimizer, nn.CrossEntropyLoss(), _classes())


@program
def cnn(torch, compile):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 4, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(4)
            self.conv2 = nn.Conv2d(4, 8, 3, stride=2)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            x = nn.functional.max_pool2d(self.norm(self.conv1(x)).relu(), 2)
            x = torch.relu(self.conv2(x)).mean(dim=(2, 3))
            return self.head(x)

    model = weighted(torch, Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = [(normal(4, 1, 8, 8, seed=i), whole(3, 4, seed=i)) for i in range(4)]
    losses = _train(torch, compile, model, optimizer, nn.functional.cross_entropy, batches)
    model.eval()
    with torch.no_grad():
        out = model(torch.from_numpy(batches[0][0]))
    return [*losses, *out.flatten().tolist()]


@program
def residual_with_groupnorm(torch, compile):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(2, width), nn.GELU(), nn.Conv2d(width, width, 1)
            )

        def forward(self, x):
            return x + self.body(x)

    model = weighted(torch, nn.Sequential(
        nn.Conv2d(1, 4, 3), Block(4), nn.SiLU(), Block(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ))  # fmt: skip
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    batches = [(normal(4, 1, 8, 8, seed=i), whole(3, 4, seed=i)) for i in range(4)]
    return _train(torch, compile, model, optimizer, nn.CrossEntropyLoss(), batches, schedule)


@program
def multilabel(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 0.5]))
    batches = [(normal(8, 6, seed=i), whole(2, 8, 3, seed=i).astype("float32")) for i in range(4)]
    return _train(torch, compile, model, optimizer, loss, batches, schedule)


@program
def label_smoothing_and_class_weights(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.1), nn.Linear(16, 3)))
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1, ignore_index=2)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    return _train(torch, compile, model, optimizer, loss, _classes())


@program
def quantile_regression(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Sequential(nn.Linear(6, 16), nn.Softplus(), nn.Linear(16, 3)))
    levels = torch.tensor([0.1, 0.5, 0.9])

    def pinball(out, y):
        gap = y[:, None] - out
        return torch.maximum(levels * gap, (levels - 1) * gap).mean()

    optimizer = torch.optim.NAdam(model.parameters(), lr=0.02)
    batches = [(normal(8, 6, seed=i), normal(8, seed=i)) for i in range(4)]
    return _train(torch, compile, model, optimizer, pinball, batches)


@program
def robust_regression(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Sequential(nn.Linear(6, 16), nn.ELU(), nn.Linear(16, 1), nn.Flatten(0)))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    batches = [(normal(8, 6, seed=i), 3 * normal(8, seed=i)) for i in range(4)]
    return _train(torch, compile, model, optimizer, nn.SmoothL1Loss(beta=0.5), batches)


@program
def logistic_regression_by_hand(torch, compile):
    w = torch.zeros(6, 3, requires_grad=True)
    b = torch.zeros(3, requires_grad=True)

    def step(x, y):
        logits = x @ w + b
        loss = -torch.log_softmax(logits, dim=1).gather(1, y[:, None]).mean()
        loss.backward()
        with torch.no_grad():
            w.sub_(0.5 * w.grad)
            b.sub_(0.5 * b.grad)
        w.grad.zero_()
        b.grad.zero_()
        return loss.detach()

    step(torch.from_numpy(normal(8, 6, seed=9)), torch.from_numpy(whole(3, 8, seed=9)))
    step = compile(step)
    return [step(torch.from_numpy(x), torch.from_numpy(y)).item() for x, y in _classes()]


@program(compiled=False)
def lbfgs_regression(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)))
    x, y = torch.from_numpy(normal(16, 6)), torch.from_numpy(normal(16, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=3)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(2):
        optimizer.step(closure)
    return losses


@program
def triplet_embedding(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.Adamax(model.parameters(), lr=0.02)
    loss_of = nn.TripletMarginLoss(margin=1.0)

    def step(a, p, n):
        optimizer.zero_grad(set_to_none=False)
        embed = lambda x: nn.functional.normalize(model(x), dim=-1)  # noqa: E731
        loss = loss_of(embed(a), embed(p), embed(n))
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(*(torch.from_numpy(normal(8, 6, seed=3 * i + k)) for k in range(3))).item() for i in range(4)]


@program
def support_vector_machine(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Linear(6, 3))
    optimizer = torch.optim.RAdam(model.parameters(), lr=0.1)
    return _train(torch, compile, model, optimizer, nn.MultiMarginLoss(margin=1.0), _classes(6))


@program
def dilated_convolutions_over_time(torch, compile):
    nn = torch.nn

    class Causal(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
            self.conv = nn.Conv1d(4, 4, 3, dilation=dilation)
            self.gate = nn.Conv1d(4, 4, 1)

        def forward(self, x):
            y = self.conv(self.pad(x))
            return x + torch.tanh(y) * torch.sigmoid(self.gate(y))

    model = weighted(torch, nn.Sequential(nn.Conv1d(1, 4, 1), *(Causal(d) for d in (1, 2, 4)), nn.Conv1d(4, 1, 1)))
    optimizer = torch.optim.ASGD(model.parameters(), lr=0.05)
    batches = [(x[:, :, :-1].copy(), x[:, :, 1:].copy()) for x in (normal(2, 1, 13, seed=i) for i in range(4))]
    return _train(torch, compile, model, optimizer, nn.MSELoss(), batches)


@program
def segmentation(torch, compile):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Conv2d(1, 4, 3, stride=2, padding=1)
            self.mid = nn.Conv2d(4, 4, 3, padding=1)
            self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
            self.head = nn.Conv2d(5, 2, 1)

        def forward(self, x):
            y = nn.functional.silu(self.down(x))
            y = self.up(nn.functional.silu(self.mid(y)))
            return self.head(torch.cat([x, y], dim=1))

    def dice(logits, y):
        p = logits.softmax(dim=1)[:, 1]
        return 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1) + nn.functional.cross_entropy(logits, y)

    model = weighted(torch, Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, amsgrad=True)
    batches = [(normal(2, 1, 8, 8, seed=i), whole(2, 2, 8, 8, seed=i)) for i in range(4)]
    return _train(torch, compile, model, optimizer, dice, batches)


@program
def mixture_density_network(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 9)))

    def likelihood(out, y):
        weight, mean, log_scale = out.chunk(3, dim=-1)
        log = -0.5 * ((y - mean) / log_scale.exp()) ** 2 - log_scale
        return -torch.logsumexp(torch.log_softmax(weight, dim=-1) + log, dim=-1).mean()

    optimizer = torch.optim.Rprop(model.parameters(), lr=0.01)
    batches = [(numbers(8, 1), normal(8, 1))] * 4
    return _train(torch, compile, model, optimizer, likelihood, batches)
