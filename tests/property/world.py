"""What a program's lines may name besides tensors: hooks that note what they see, Functions, functions to be mapped.

One text for both libraries, which a failing program's source shows as well; `T` is the library, and `noted(x)` gives a
copy of a tensor's values.
"""

SOURCE = '''\
LOG = []  # what was called, and what it saw, in order
HANDLES = {}


def hook(name, factor=None):
    """A tensor hook; with a factor it gives another gradient."""
    def called(grad):
        LOG.append((name, noted(grad)))
        return None if factor is None else grad * factor
    return called


def leaf_hook(name):
    """A hook for when a leaf's gradient has been accumulated."""
    return lambda leaf: LOG.append((name, noted(leaf.grad)))


def node_hook(name):
    """A hook before or after a node, which only notes that it ran."""
    return lambda *grads: LOG.append((name, None))


def hooks(name, kind):
    """Hooks for saved tensors, which pack the tensor itself ("object"), a view of it, or its values alone."""
    def pack(x):
        LOG.append((name + " packs", noted(x)))
        return {"object": lambda: (x,), "view": lambda: x.unsqueeze(0), "values": lambda: noted(x)}[kind]()

    def unpack(packed):
        LOG.append((name + " unpacks", None))
        return T.from_numpy(packed) if kind == "values" else packed[0]
    return pack, unpack


class Scale(T.autograd.Function):
    """In place."""
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        ctx.mark_dirty(x)
        return x.mul_(factor)

    @staticmethod
    def backward(ctx, grad):
        LOG.append(("Scale", noted(grad)))
        return grad * ctx.factor, None


class MulInto(T.autograd.Function):
    """In place, and with a second result; differentiable twice."""
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x.clone(), y)
        ctx.mark_dirty(x)
        x.mul_(y)
        return x, y * 2

    @staticmethod
    def backward(ctx, grad, other):
        x, y = ctx.saved_tensors
        LOG.append(("MulInto", noted(grad)))
        return grad * y, (grad * x if other is None else grad * x + 2 * other)


class Square(T.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        LOG.append(("Square", noted(grad)))
        return grad * x * 2


class Same(T.autograd.Function):
    """Returns its argument."""
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


class Flat(T.autograd.Function):
    """Returns a view of its argument."""
    @staticmethod
    def forward(ctx, x):
        return x.unsqueeze(0)

    @staticmethod
    def backward(ctx, grad):
        return grad.squeeze(0) * 2


def square(x):
    return (x * x).tanh()


def through_view(x):
    y = x.clone()
    y.unsqueeze(0)[0].mul_(x)
    return y


def product(x, y):
    z = x * y
    z.add_(y)
    return z.tanh()


def cubed(x):
    return (x * x * x).sum()


def total(x):
    return x * x.sum()


def checkpoint(function, *args, reentrant=False):
    return T.utils.checkpoint.checkpoint(function, *args, use_reentrant=reentrant)


def again(x):
    """Backward from the gradient of a leaf.  That it is a constant, only one library may know: no hook is noted."""
    grad, count = (x.grad if x.is_leaf else x), len(LOG)
    if grad is not None and grad.requires_grad:
        (grad * grad).sum().backward()
    del LOG[count:]


def dual(x, tangent):
    return T.autograd.forward_ad.make_dual(x, tangent)
'''
