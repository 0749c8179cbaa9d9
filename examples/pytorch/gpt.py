"""A small GPT that learns to sort digits: a PyTorch program with one changed import, its step in a lazy block.

    python examples/pytorch/gpt.py --steps 300

Six digits are followed by the same six in order; the model sees the first, and says the second.
"""

import argparse

import xgrad as torch
from xgrad import nn
from xgrad.nn import functional as F

DIGITS, LENGTH, WIDTH, HEADS = 10, 6, 48, 4


class Block(nn.Module):
    """Attention to what came before, then a layer of neurons for each place."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Digits (batch, length) to scores (batch, length, 10) of the next one."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(DIGITS, WIDTH), nn.Embedding(2 * LENGTH - 1, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, DIGITS, bias=False)

    def forward(self, digits):
        x = self.tokens(digits) + self.places(torch.arange(digits.shape[1], device=digits.device))
        return self.head(self.norm(self.blocks(x)))


def batch(size=64):
    """Return digits and, for each place, the next one; -100, which the loss leaves out, within the first six."""
    digits = torch.randint(DIGITS, (size, LENGTH))
    both = torch.cat([digits, digits.sort(dim=1).values], dim=1)
    target = both[:, 1:].clone()
    target[:, : LENGTH - 1] = -100
    return both[:, :-1], target


def main(steps):
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps)
    for step in range(steps):
        with torch.lazy():  # the whole step is one XLA program
            inputs, target = batch()
            loss = F.cross_entropy(model(inputs).flatten(0, 1), target.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        schedule.step()
        if step % max(1, steps // 5) == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}")
    model.eval()
    with torch.no_grad():
        inputs, target = batch(256)
        right = (model(inputs).argmax(-1) == target)[:, LENGTH - 1 :].float().mean().item()
    print(f"{right:.0%} of the digits are right")
    return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
