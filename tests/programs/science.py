"""Physics, graphs, Gaussian processes: derivatives inside of the loss, custom Functions, linear algebra."""

import math

from .harness import normal, numbers, program, weighted, whole


@program
def physics_informed(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(x):
        x = x.requires_grad_()
        u = model(x)
        (du,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
        (ddu,) = torch.autograd.grad(du, x, torch.ones_like(du), create_graph=True)
        inside = ((ddu + torch.sin(math.pi * x)) ** 2).mean()
        border = (model(torch.tensor([[0.0], [1.0]])) ** 2).mean()
        loss = inside + 10 * border
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(torch.from_numpy(numbers(8, 1, seed=i, low=0.0))).item() for i in range(4)]


@program
def neural_ode_by_adjoint(torch, compile):
    nn = torch.nn
    field = weighted(torch, nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)))
    parameters = list(field.parameters())
    h = 0.25

    class Adjoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z, *weights):
            for _ in range(4):
                z = z + h * field(z)
            ctx.save_for_backward(z)
            return z

        @staticmethod
        def backward(ctx, a):
            (z,) = ctx.saved_tensors
            total = [torch.zeros_like(p) for p in parameters]
            for _ in range(4):
                with torch.enable_grad():
                    at = z.detach().requires_grad_()
                    f = field(at)
                    back, *grads = torch.autograd.grad(f, [at, *parameters], a)
                total = [t + h * g for t, g in zip(total, grads)]
                z, a = z - h * f.detach(), a + h * back
            return (a, *total)

    optimizer = torch.optim.Adam(parameters, lr=0.02)

    def step(x, y):
        loss = ((Adjoint.apply(x, *parameters) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    draws = ((normal(4, 2, seed=i), normal(4, 2, seed=i + 9)) for i in range(4))
    return [step(*map(torch.from_numpy, draw)).item() for draw in draws]


@program(compiled=False)
def equilibrium_by_hooks(torch, compile):
    nn = torch.nn
    cell = weighted(torch, nn.Linear(4, 4))
    inject = weighted(torch, nn.Linear(3, 4), 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *inject.parameters()], lr=0.1)
    found = []
    for i in range(3):
        x, y = torch.from_numpy(normal(5, 3, seed=i)), torch.from_numpy(normal(5, 4, seed=i))

        def f(z, x=x):
            return torch.tanh(0.5 * cell(z) + inject(x))

        with torch.no_grad():
            z = torch.zeros(5, 4)
            for _ in range(30):
                z = f(z)
        z = f(z)
        at = z.detach().requires_grad_()
        again = f(at)

        def solve(grad, again=again, at=at):
            total = grad
            for _ in range(30):
                total = torch.autograd.grad(again, at, total, retain_graph=True)[0] + grad
            return total

        z.register_hook(solve)
        loss = nn.functional.mse_loss(z, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found += [loss.item(), cell.weight.grad.norm().item()]
    return found


@program(rtol=1e-4)
def gaussian_process(torch, compile):
    x, y = torch.from_numpy(numbers(8, 2)), torch.from_numpy(normal(8))
    log = {name: torch.zeros((), requires_grad=True) for name in ("length", "scale", "noise")}
    optimizer = torch.optim.Adam(log.values(), lr=0.1)

    def step():
        squares = torch.cdist(x, x).pow(2)
        k = log["scale"].exp() * torch.exp(-0.5 * squares / log["length"].exp() ** 2)
        k = k + (log["noise"].exp() + 1e-4) * torch.eye(8)
        chol = torch.linalg.cholesky(k)
        a = torch.cholesky_solve(y[:, None], chol)
        loss = 0.5 * (y @ a.squeeze(1)) + chol.diagonal().log().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step().item() for _ in range(4)]


@program
def hamiltonian_network(torch, compile):
    nn = torch.nn
    energy = weighted(torch, nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.Adam(energy.parameters(), lr=0.02)

    def step(x, dx):
        x = x.requires_grad_()
        (grad,) = torch.autograd.grad(energy(x).sum(), x, create_graph=True)
        field = torch.stack([grad[:, 1], -grad[:, 0]], dim=1)
        loss = nn.functional.mse_loss(field, dx)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    draws = ((normal(6, 2, seed=i), normal(6, 2, seed=i + 9)) for i in range(4))
    return [step(*map(torch.from_numpy, draw)).item() for draw in draws]


@program
def simulation_written_in_place(torch, compile):
    start = torch.from_numpy(numbers(6, low=0.0)).requires_grad_()
    target = torch.from_numpy(numbers(6, seed=3))
    optimizer = torch.optim.SGD([start], lr=0.3)

    def step():
        u = start.clone()
        track = torch.zeros(4, 6)
        for t in range(4):  # heat, with fixed ends
            u[1:-1] = u[1:-1] + 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2])
            track[t] = u
        loss = ((track[-1] - target) ** 2).sum() + 0.01 * track.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step().item() for _ in range(4)] + start.tolist()


@program
def graph_network_by_scatter(torch, compile):
    nn = torch.nn
    source, target = (torch.from_numpy(whole(7, 15, seed=s)) for s in (1, 2))
    model = weighted(
        torch, nn.ModuleDict({"message": nn.Linear(8, 6), "renew": nn.GRUCell(6, 4), "head": nn.Linear(4, 3)})
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    y = torch.from_numpy(whole(3, 7))

    def step(h):
        for _ in range(2):
            messages = torch.relu(model["message"](torch.cat([h[source], h[target]], dim=-1)))
            total = torch.zeros(7, 6).index_add(0, target, messages)
            count = torch.zeros(7).scatter_add_(0, target, torch.ones(15))
            h = model["renew"](total / count.clamp(min=1)[:, None], h)
        loss = nn.functional.cross_entropy(model["head"](h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(torch.from_numpy(normal(7, 4))).item() for _ in range(4)]


@program
def graph_attention(torch, compile):
    nn = torch.nn
    source, target = (torch.from_numpy(whole(7, 15, seed=s)) for s in (1, 2))
    model = weighted(
        torch, nn.ModuleDict({"value": nn.Linear(4, 6), "score": nn.Linear(12, 1), "head": nn.Linear(6, 3)})
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    y = torch.from_numpy(whole(3, 7))

    def step(x):
        v = model["value"](x)
        e = nn.functional.leaky_relu(model["score"](torch.cat([v[source], v[target]], -1)).squeeze(-1), 0.2)
        most = torch.full((7,), -1e9).scatter_reduce(0, target, e, reduce="amax")
        weight = torch.exp(e - most[target])
        weight = weight / torch.zeros(7).index_add(0, target, weight)[target]
        out = torch.zeros(7, 6).index_add(0, target, weight[:, None] * v[source])
        loss = nn.functional.cross_entropy(model["head"](torch.relu(out)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(torch.from_numpy(normal(7, 4))).item() for _ in range(4)]


@program
def graph_convolution_with_a_sparse_matrix(torch, compile):
    nn = torch.nn
    index = torch.from_numpy(whole(7, 2, 15))
    adjacency = torch.sparse_coo_tensor(index, torch.ones(15), (7, 7)).coalesce()
    model = weighted(torch, nn.ModuleList([nn.Linear(4, 6), nn.Linear(6, 3)]))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    y = torch.from_numpy(whole(3, 7))
    found = []
    for _ in range(3):
        h = torch.relu(torch.sparse.mm(adjacency, model[0](torch.from_numpy(normal(7, 4)))))
        loss = nn.functional.cross_entropy(torch.sparse.mm(adjacency, model[1](h)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@program
def matrix_factorization(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.ModuleDict({"user": nn.Embedding(6, 3), "item": nn.Embedding(8, 3)}))
    bias = nn.ParameterList([nn.Parameter(torch.zeros(6)), nn.Parameter(torch.zeros(8))])
    optimizer = torch.optim.SGD([*model.parameters(), *bias.parameters()], lr=0.3, momentum=0.8)

    def step(user, item, rating):
        guess = (model["user"](user) * model["item"](item)).sum(-1) + bias[0][user] + bias[1][item]
        loss = nn.functional.huber_loss(guess, rating)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    draws = ((whole(6, 10, seed=i), whole(8, 10, seed=i), numbers(10, seed=i)) for i in range(4))
    return [step(*map(torch.from_numpy, draw)).item() for draw in draws]


@program
def sinusoidal_field_fitted_by_its_gradient(torch, compile):
    nn = torch.nn

    class Sine(nn.Module):
        def forward(self, x):
            return torch.sin(3.0 * x)

    model = weighted(torch, nn.Sequential(nn.Linear(2, 8), Sine(), nn.Linear(8, 8), Sine(), nn.Linear(8, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)

    def step(x, slope):
        x = x.requires_grad_()
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = (grad - slope).pow(2).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    draws = ((numbers(6, 2, seed=i), normal(6, 2, seed=i)) for i in range(4))
    return [step(*map(torch.from_numpy, draw)).item() for draw in draws]


@program(compiled=False)
def hamiltonian_monte_carlo(torch, compile):
    precision = torch.tensor([[2.0, 0.5], [0.5, 1.0]])

    def potential(q):
        return 0.5 * q @ precision @ q + 0.1 * (q**4).sum()

    def slope(q):
        q = q.detach().requires_grad_()
        return torch.autograd.grad(potential(q), q)[0]

    q, found = torch.ones(2), []
    for i in range(3):
        p = torch.from_numpy(normal(2, seed=i))
        new, momentum = q.clone(), p.clone()
        before = potential(q) + 0.5 * p @ p
        momentum -= 0.05 * slope(new)
        for k in range(4):
            new += 0.1 * momentum
            momentum -= (0.1 if k < 3 else 0.05) * slope(new)
        after = potential(new) + 0.5 * momentum @ momentum
        if torch.exp(before - after).item() > 0.5:
            q = new
        found += [before.item(), after.item(), *q.tolist()]
    return found


@program(compiled=False, rtol=1e-4)
def newtons_method(torch, compile):
    target = torch.from_numpy(normal(3))

    def loss_of(x):
        return ((x - target) ** 2).sum() + (x**4).sum() + torch.logsumexp(x, 0)

    x, found = torch.zeros(3), []
    for _ in range(4):
        gradient = torch.func.grad(loss_of)(x)
        curvature = torch.func.hessian(loss_of)(x)
        x = x - torch.linalg.solve(curvature, gradient)
        found += [loss_of(x).item(), torch.autograd.functional.hessian(loss_of, x).trace().item()]
    return found


@program
def fourier_operator(torch, compile):
    nn = torch.nn
    real, imaginary = (nn.Parameter(torch.from_numpy(normal(3, 2, 2, seed=s))) for s in (1, 2))
    lift, head = weighted(torch, nn.Linear(1, 2), 1), weighted(torch, nn.Linear(2, 1), 2)
    optimizer = torch.optim.Adam([real, imaginary, *lift.parameters(), *head.parameters()], lr=0.02)

    def step(x, y):
        h = lift(x)
        modes = torch.fft.rfft(h, dim=1)
        kept = torch.einsum("bki,kij->bkj", modes[:, :3], torch.complex(real, imaginary))
        full = torch.cat([kept, torch.zeros_like(modes[:, 3:])], dim=1)
        h = nn.functional.gelu(h + torch.fft.irfft(full, n=8, dim=1))
        loss = nn.functional.mse_loss(head(h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    draws = ((normal(2, 8, 1, seed=i), normal(2, 8, 1, seed=i + 9)) for i in range(4))
    return [step(*map(torch.from_numpy, draw)).item() for draw in draws]


@program(rtol=1e-4)
def optimal_transport(torch, compile):
    x = torch.from_numpy(normal(5, 2)).requires_grad_()
    y = torch.from_numpy(normal(6, 2, seed=1))
    optimizer = torch.optim.SGD([x], lr=0.2)

    def step():
        cost = torch.cdist(x, y) ** 2
        f, g = torch.zeros(5), torch.zeros(6)
        for _ in range(8):
            f = -0.5 * torch.logsumexp((g[None] - cost) / 0.5 - math.log(6), dim=1)
            g = -0.5 * torch.logsumexp((f[:, None] - cost) / 0.5 - math.log(5), dim=0)
        loss = f.mean() + g.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step().item() for _ in range(4)]
