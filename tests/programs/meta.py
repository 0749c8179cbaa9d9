"""Derivatives of training itself, gradients of single samples, curvature, gradients changed on their way."""

import copy

from .harness import normal, program, weighted, whole


def _net(torch, seed=0, width=8):
    nn = torch.nn
    return weighted(torch, nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2)), seed)


def _tasks(torch, n):
    return [[torch.from_numpy(normal(5, k, seed=10 * i + s)) for s, k in enumerate((3, 2, 3, 2))] for i in range(n)]


@program
def maml(torch, compile):
    model = _net(torch)
    mse = torch.nn.functional.mse_loss
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    def step(xs, ys, xq, yq):
        weights = dict(model.named_parameters())
        for _ in range(2):
            inner = mse(torch.func.functional_call(model, weights, (xs,)), ys)
            grads = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), grads)}
        loss = mse(torch.func.functional_call(model, weights, (xq,)), yq)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(*task).item() for task in _tasks(torch, 3)]


@program
def reptile(torch, compile):
    model = _net(torch)
    found = []
    for xs, ys, xq, yq in _tasks(torch, 3):
        fast = copy.deepcopy(model)
        optimizer = torch.optim.SGD(fast.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(fast(xs), ys).backward()
            optimizer.step()
        with torch.no_grad():
            for slow, new in zip(model.parameters(), fast.parameters()):
                slow.add_(new - slow, alpha=0.5)
            found.append(torch.nn.functional.mse_loss(model(xq), yq).item())
    return found


@program
def hypergradient(torch, compile):
    x, y = (torch.from_numpy(normal(6, k)) for k in (3, 1))
    xv, yv = (torch.from_numpy(normal(6, k, seed=4)) for k in (3, 1))
    log_decay = torch.tensor(-2.0, requires_grad=True)
    log_rate = torch.tensor(-2.0, requires_grad=True)
    optimizer = torch.optim.Adam([log_decay, log_rate], lr=0.2)

    def step():
        w = torch.zeros(3, 1, requires_grad=True)
        for _ in range(4):
            inner = ((x @ w - y) ** 2).mean() + log_decay.exp() * (w**2).sum()
            (g,) = torch.autograd.grad(inner, w, create_graph=True)
            w = w - log_rate.exp() * g
        loss = ((xv @ w - yv) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step().item() for _ in range(4)] + [log_decay.item(), log_rate.item()]


@program
def private_by_vmap(torch, compile):
    model = _net(torch)
    names = [name for name, _ in model.named_parameters()]

    def loss_of(weights, x, y):
        return torch.nn.functional.cross_entropy(torch.func.functional_call(model, weights, (x[None],)), y[None])

    per_sample = torch.func.vmap(torch.func.grad_and_value(loss_of), in_dims=(None, 0, 0))

    def step(x, y, *noise):
        weights = {name: p.detach() for name, p in model.named_parameters()}
        grads, losses = per_sample(weights, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        factor = (0.5 / (norms + 1e-6)).clamp(max=1.0)
        with torch.no_grad():
            for (name, p), n in zip(model.named_parameters(), noise):
                g = (grads[name] * factor.view(-1, *[1] * p.dim())).sum(0) + 0.1 * n
                p.sub_(g / len(x), alpha=0.5)
        return losses.mean()

    assert len(names) == 4
    step, found = compile(step), []
    for i in range(4):
        noise = [torch.from_numpy(normal(*p.shape, seed=i)) for p in model.parameters()]
        found.append(step(torch.from_numpy(normal(6, 3, seed=i)), torch.from_numpy(whole(2, 6, seed=i)), *noise).item())
    return found


@program(compiled=False, rtol=1e-4)
def kronecker_factors_by_hooks(torch, compile):
    nn = torch.nn
    model = _net(torch)
    inputs, outputs = {}, {}

    def forward_hook(module, args, out):
        inputs[module] = args[0].detach()

    def backward_hook(module, grad_in, grad_out):
        outputs[module] = grad_out[0].detach()

    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    for layer in layers:
        layer.register_forward_hook(forward_hook)
        layer.register_full_backward_hook(backward_hook)
    found = []
    for i in range(3):
        x, y = torch.from_numpy(normal(6, 3, seed=i)), torch.from_numpy(whole(2, 6, seed=i))
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for layer in layers:
                a, g = inputs[layer], outputs[layer] * len(x)
                a = torch.cat([a, torch.ones(len(a), 1)], dim=1)
                left = torch.linalg.inv(g.T @ g / len(x) + 0.1 * torch.eye(g.shape[1]))
                right = torch.linalg.inv(a.T @ a / len(x) + 0.1 * torch.eye(a.shape[1]))
                step = left @ torch.cat([layer.weight.grad, layer.bias.grad[:, None]], dim=1) @ right
                layer.weight -= 0.05 * step[:, :-1]
                layer.bias -= 0.05 * step[:, -1]
        found += [loss.item(), step.norm().item()]
    return found


@program(rtol=1e-4)
def conjugate_gradients_by_curvature_products(torch, compile):
    model = _net(torch, width=4)
    x, y = torch.from_numpy(normal(6, 3)), torch.from_numpy(normal(6, 2))
    parameters = list(model.parameters())

    def product(grads, vector):
        dot = sum((g * v).sum() for g, v in zip(grads, vector))
        again = torch.autograd.grad(dot, parameters, retain_graph=True)
        return [h + 1.0 * v for h, v in zip(again, vector)]

    def step():
        loss = torch.nn.functional.mse_loss(model(x), y)
        grads = torch.autograd.grad(loss, parameters, create_graph=True)
        rest = [-g.detach() for g in grads]
        move, direction = [torch.zeros_like(r) for r in rest], rest
        for _ in range(3):
            h = product(grads, direction)
            norm = sum((r * r).sum() for r in rest)
            rate = norm / sum((d * k).sum() for d, k in zip(direction, h))
            move = [m + rate * d for m, d in zip(move, direction)]
            rest = [r - rate * k for r, k in zip(rest, h)]
            factor = sum((r * r).sum() for r in rest) / norm
            direction = [r + factor * d for r, d in zip(rest, direction)]
        with torch.no_grad():
            for p, m in zip(parameters, move):
                p.add_(m)
        return loss.detach()

    step = compile(step)
    return [step().item() for _ in range(3)]


@program
def domain_adversarial(torch, compile):
    nn = torch.nn

    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad.neg() * ctx.factor, None

    body = weighted(torch, nn.Sequential(nn.Linear(3, 8), nn.ReLU()))
    label, domain = weighted(torch, nn.Linear(8, 2), 1), weighted(torch, nn.Linear(8, 2), 2)
    everything = nn.ModuleList([body, label, domain])
    optimizer = torch.optim.SGD(everything.parameters(), lr=0.1, momentum=0.9)

    def step(x, y, other):
        h = body(x)
        loss = nn.functional.cross_entropy(label(h), y)
        both = torch.cat([h, body(other)])
        where = torch.cat([torch.zeros(6, dtype=torch.long), torch.ones(6, dtype=torch.long)])
        loss = loss + nn.functional.cross_entropy(domain(Reverse.apply(both, 0.5)), where)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    draws = ((normal(6, 3, seed=i), whole(2, 6, seed=i), normal(6, 3, seed=i + 9)) for i in range(4))
    return [step(*map(torch.from_numpy, draw)).item() for draw in draws]


@program
def ensemble_by_vmap(torch, compile):
    models = [_net(torch, seed) for seed in range(3)]
    weights, buffers = torch.func.stack_module_state(models)
    template = models[0]
    optimizer = torch.optim.SGD(list(weights.values()), lr=0.3)

    def one(w, b, x):
        return torch.func.functional_call(template, (w, b), (x,))

    def step(x, y):
        out = torch.func.vmap(one, in_dims=(0, 0, None))(weights, buffers, x)
        loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), y.repeat(3))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    draws = ((normal(6, 3, seed=i), whole(2, 6, seed=i)) for i in range(4))
    return [step(*map(torch.from_numpy, draw)).item() for draw in draws]


@program(compiled=False)
def spectral_normalization(torch, compile):
    nn = torch.nn
    model = _net(torch)
    layer = nn.utils.parametrizations.weight_norm(model[0])
    nn.utils.parametrizations.orthogonal(model[2], orthogonal_map="householder")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for i in range(3):
        x, y = torch.from_numpy(normal(6, 3, seed=i)), torch.from_numpy(whole(2, 6, seed=i))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found += [loss.item(), layer.weight.norm().item(), (model[2].weight @ model[2].weight.T).trace().item()]
    return found


@program
def evolution_strategies(torch, compile):
    model = _net(torch)
    names, shapes = zip(*((n, p.shape) for n, p in model.named_parameters()))
    sizes = [p.numel() for p in model.parameters()]
    vector = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    x, y = torch.from_numpy(normal(6, 3)), torch.from_numpy(normal(6, 2))

    def fitness(v):
        weights = {n: part.view(s) for n, s, part in zip(names, shapes, v.split(sizes))}
        return -torch.nn.functional.mse_loss(torch.func.functional_call(model, weights, (x,)), y)

    def step(vector, noise):
        scores = torch.func.vmap(fitness)(vector + 0.1 * noise)
        scores = (scores - scores.mean()) / scores.std()
        return vector + 0.05 * (scores[:, None] * noise).mean(0) / 0.1

    step, found = compile(step), []
    for i in range(4):
        vector = step(vector, torch.from_numpy(normal(8, len(vector), seed=i)))
        torch.nn.utils.vector_to_parameters(vector, model.parameters())
        found.append(torch.nn.functional.mse_loss(model(x), y).item())
    return found


@program
def adversarial_training(torch, compile):
    model = _net(torch)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

    def step(x, y):
        noise = torch.zeros_like(x, requires_grad=True)
        for _ in range(2):
            loss = torch.nn.functional.cross_entropy(model(x + noise), y)
            (g,) = torch.autograd.grad(loss, noise)
            noise = (noise + 0.1 * g.sign()).clamp(-0.15, 0.15).detach().requires_grad_()
        loss = torch.nn.functional.cross_entropy(model(x + noise.detach()), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    draws = ((normal(6, 3, seed=i), whole(2, 6, seed=i)) for i in range(4))
    return [step(*map(torch.from_numpy, draw)).item() for draw in draws]
