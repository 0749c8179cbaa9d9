"""Steps of AdamW by xgrad's tape, for modules of any library: what their own steps are compared with."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import xgrad

# eps: the gradient of an attention's key bias is nothing but rounding, which AdamW with 1e-8 would make visible.
TX = optax.adamw(3e-2, eps=1e-6, weight_decay=0.1)
_RNG = np.random.default_rng(0)
IMAGES = _RNG.standard_normal((4, 6, 6, 1))
TOKENS = _RNG.integers(0, 11, (3, 5))
LABELS = _RNG.integers(0, 3, (4,))
STEPS = 20


def labelled(logits, labels):
    """The loss of the frameworks' own steps."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


class Tape:
    """A compiled step: forward, backward, AdamW."""

    def __init__(self, net, call=None):
        self.net, self.call = net, net if call is None else call
        self.params = list(net.parameters())
        state = TX.init([p.detach()._read() for p in self.params])
        self.state = jax.tree.map(
            lambda leaf: xgrad.tensor(leaf) if not isinstance(leaf, xgrad.Tensor) else leaf, state
        )
        self.update = xgrad.from_jax(TX.update)
        self.step = xgrad.compile(self._step)

    def _step(self, inputs, labels, state, *rest):
        for p in self.params:
            p.grad = None
        logits = self.call(inputs, *rest)
        loss = xgrad.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))
        loss.backward()
        taught = [p for p in self.params if p.grad is not None]
        updates, state = self.update([p.grad for p in taught], state, [p.detach() for p in taught])
        with xgrad.no_grad():
            for p, change in zip(taught, updates, strict=True):
                p.add_(change)
        return loss.detach(), state

    def __call__(self, inputs, labels, *rest):
        loss, self.state = self.step(xgrad.tensor(inputs), xgrad.tensor(labels), self.state, *rest)
        return loss


def difference(ours, theirs):
    """The largest difference between the arrays of two trees, keys left out."""
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(ours) == len(theirs)
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if jnp.issubdtype(a.dtype, jnp.number)]
    return max(float(jnp.abs(jnp.asarray(a, float) - jnp.asarray(b, float)).max()) for a, b in pairs)
