"""Reinforcement learning on a walk along a line; what is random is NumPy's."""

import numpy as np

from .harness import normal, numbers, program, weighted, whole


def _policy(torch, out=2, seed=0):
    nn = torch.nn
    return weighted(torch, nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, out)), seed)


@program(compiled=False)
def reinforce(torch, compile):
    policy = _policy(torch)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    found = []
    for episode in range(3):
        draws = numbers(6, seed=episode, low=0.0)
        place, log_probs, rewards = np.zeros(3, np.float32), [], []
        for t in range(6):
            probs = torch.softmax(policy(torch.from_numpy(place.copy())), dim=-1)
            action = int(draws[t] > probs[0].item())
            log_probs.append(torch.log(probs[action]))
            place = np.roll(place, 1) + np.array([action - 0.5, 0, 0.1], np.float32)
            rewards.append(float(place[0] - 0.1 * abs(place[1])))
        returns = torch.tensor([sum(0.9**k * r for k, r in enumerate(rewards[t:])) for t in range(6)])
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = -(torch.stack(log_probs) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@program(compiled=False)
def deep_q_learning_with_a_buffer(torch, compile):
    net, target = _policy(torch), _policy(torch)
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    states, nexts = torch.zeros(16, 3), torch.zeros(16, 3)
    actions, rewards = torch.zeros(16, dtype=torch.long), torch.zeros(16)
    found = []
    for t in range(20):
        i = t % 16
        states[i] = torch.from_numpy(normal(3, seed=t))
        nexts[i].copy_(torch.from_numpy(normal(3, seed=t + 100)))
        actions[i] = t % 2
        rewards[i] = float(np.sin(t))
        if t % 4 == 3:
            batch = torch.from_numpy(whole(min(t + 1, 16), 6, seed=t))
            q = net(states[batch]).gather(1, actions[batch, None]).squeeze(1)
            with torch.no_grad():
                best = rewards[batch] + 0.9 * target(nexts[batch]).max(dim=1).values
            loss = torch.nn.functional.smooth_l1_loss(q, best)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_value_(net.parameters(), 1.0)
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), net.parameters()):
                    slow.mul_(0.9).add_(fast, alpha=0.1)
            found.append(loss.item())
    return found


@program
def clipped_policy(torch, compile):
    actor, critic = _policy(torch), _policy(torch, 1, seed=1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=0.02, eps=1e-5)

    def step(state, action, old, advantage, value):
        log = torch.log_softmax(actor(state), dim=-1)
        ratio = torch.exp(log.gather(1, action[:, None]).squeeze(1) - old)
        surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(log.exp() * log).sum(-1).mean()
        loss = -surrogate + 0.5 * (critic(state).squeeze(-1) - value).pow(2).mean() - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
        optimizer.step()
        return loss.detach()

    step = compile(step)
    state, action = normal(8, 3), whole(2, 8)
    old, advantage, value = numbers(8, low=-1.0, high=-0.4), normal(8), normal(8, seed=5)
    batch = [torch.from_numpy(x) for x in (state, action, old, advantage, value)]
    return [step(*batch).item() for _ in range(4)]


@program
def deterministic_policy_with_a_critic(torch, compile):
    nn = torch.nn
    actor = nn.Sequential(_policy(torch, 1), nn.Tanh())
    critic = weighted(torch, nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), 3)
    actors, critics = torch.optim.Adam(actor.parameters(), lr=0.01), torch.optim.Adam(critic.parameters(), lr=0.02)

    def step(state, action, reward):
        critics.zero_grad()
        value = nn.functional.mse_loss(critic(torch.cat([state, action], -1)), reward)
        value.backward()
        critics.step()
        actors.zero_grad()
        gain = -critic(torch.cat([state, actor(state)], -1)).mean()
        gain.backward()
        actors.step()
        return torch.stack([value.detach(), gain.detach()])

    step, found = compile(step), []
    for i in range(3):
        draw = normal(8, 3, seed=i), numbers(8, 1, seed=i), normal(8, 1, seed=i)
        found += step(*map(torch.from_numpy, draw)).tolist()
    return found
