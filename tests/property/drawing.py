"""Drawing random programs (programs.py), step by step: torch runs each step as soon as it is drawn."""

import itertools
import re
from dataclasses import dataclass

import numpy as np

from .programs import ENDINGS, Program, Step, TorchRun, overlaps_itself, overlaps_partly, places, storage

SHAPES = ((2, 3), (2, 2, 2), (4,))
FILLS = ("zero_()", "fill_(0.75)")
ALONE = ("mul_(0.5)", "add_(0.25)", "tanh_()")


class Draw:
    """Choices of a `random.Random`.  (A Hypothesis test gives its own `below`.)"""

    def __init__(self, random):
        self.below = random.randrange

    def one(self, options):
        return options[self.below(len(options))]

    def chance(self, percent):
        return self.below(100) >= 100 - percent


@dataclass(frozen=True)
class Flavour:
    """How often, in percent, a program does what."""

    views: int = 50
    writes: int = 35
    moves: int = 5  # in-place view operations
    no_grad: int = 10
    alias: int = 8  # detach() and .data
    split: int = 10
    two_bases: int = 40
    hooks: int = 0
    saved: int = 0  # blocks with hooks for saved tensors
    functions: int = 0  # custom Functions, also in place
    regions: int = 0  # checkpoints, and functions under vmap and grad
    forward: bool = False  # whether tensors have tangents
    ends: int = 0  # endings other than by `grad`


# What they draw compiles little.
PLAIN = ("writes through views", "unrecorded writes and aliases", "in-place view operations", "several bases")
FLAVOURS = {
    "writes through views": Flavour(),
    "unrecorded writes and aliases": Flavour(no_grad=35, alias=25),
    "in-place view operations": Flavour(moves=25, writes=30, split=3),
    "several bases": Flavour(two_bases=100, writes=45, views=35),
    "hooks": Flavour(hooks=40, ends=60),
    "hooks for saved tensors": Flavour(saved=30, writes=30, ends=40, hooks=5),
    "custom Functions": Flavour(functions=40, ends=40, hooks=10, saved=3),
    "checkpoints and transforms": Flavour(regions=40, ends=40, hooks=5),
    "tangents": Flavour(forward=True, ends=40),
}


class Generator:
    """Draws the steps of one program, running each on torch at once."""

    def __init__(self, draw, flavour):
        self.draw, self.flavour = draw, flavour
        self.running = TorchRun(flavour.forward)
        self.env = self.running.env
        self.steps = []
        self.names = itertools.count()
        self.aliases = []
        self.within = ()
        self.handles = []
        self.transformed = set()  # storages of the arguments of T.func's transforms

    # helpers

    def add(self, line, grad=True, refused=False):
        step = Step(line, grad, refused, self.within)
        self.steps.append(step)
        return self.running.step(step)

    def name(self):
        return f"t{next(self.names)}"

    def live(self):
        return list(self.running.tensors())

    def some(self):
        """A tensor; later ones are likelier, so that chains grow."""
        live = self.live()
        return live[-1 - min(self.draw.below(len(live)), self.draw.below(len(live)))]

    def is_leaf(self, name):
        try:
            return self.env[name].grad_fn is None
        except RuntimeError:  # a stale view, whose grad_fn cannot be made anew
            return False

    def mode(self):
        return not self.draw.chance(self.flavour.no_grad)

    # a program

    def program(self, length):
        self.base()
        if self.draw.chance(self.flavour.two_bases):
            self.base()
        kinds = [self.view] * self.flavour.views + [self.write] * self.flavour.writes
        kinds += (
            [self.move] * self.flavour.moves + [self.alias] * self.flavour.alias + [self.split] * self.flavour.split
        )
        kinds += [self.result] * 8 + [self.look] * 4
        kinds += [self.hook] * self.flavour.hooks + [self.saved] * self.flavour.saved
        kinds += [self.function] * self.flavour.functions + [self.region] * self.flavour.regions
        kinds += [self.dual] * (10 * self.flavour.forward)
        for _ in range(length):
            self.draw.one(kinds)()
        live = self.live()
        graded = [n for n in live if self.env[n].requires_grad] or live
        root = self.draw.one(list(reversed(graded)))
        leaves = [n for n in graded if self.is_leaf(n)]
        wanted = graded
        if any(".as_strided(" in step.line for step in self.steps):
            wanted = [n for n in graded if self.env[n]._base is None] or leaves or graded
        inputs = tuple(dict.fromkeys(self.draw.one(wanted) for _ in range(1 + self.draw.below(3))))
        inputs = tuple(dict.fromkeys(inputs + tuple(leaves[:1])))
        end = self.draw.one(list(ENDINGS)) if self.draw.chance(self.flavour.ends) else "grad"
        program = Program(tuple(self.steps), root, inputs, end, self.flavour.forward)
        return program, self.running.finish(program)

    def base(self):
        """A leaf, a clone of a leaf, or a tensor outside of the graph; its memory may be transposed, or a view."""
        shape, seed = self.draw.one(SHAPES), self.draw.below(3)
        if len(shape) > 1 and self.draw.chance(20):
            seen = f"data({tuple(reversed(shape))}, {seed}).permute({tuple(reversed(range(len(shape))))}).detach()"
        elif self.draw.chance(20):  # a leaf that is a view, of something that can be reached or not
            whole = f"data({(shape[0] + 1, *shape[1:])}, {seed})"
            if self.draw.chance(50):
                self.add(f"{self.name()} = {whole}")
                whole = self.live()[-1]
            seen = f"{whole}.narrow(0, {self.draw.below(2)}, {shape[0]})"
        else:
            seen = f"data({shape}, {seed})"
        kind = self.draw.below(6)
        leaf = self.name()
        self.add(f"{leaf} = {seen}" + (".requires_grad_()" if kind < 5 else ""))
        if self.flavour.forward and self.draw.chance(80):
            self.add(f"{self.name()} = dual({leaf}, data({shape}, {seed + 4}))")
        elif kind < 4:
            self.add(f"{self.name()} = {leaf}.clone()")

    def view(self):
        name = self.some()
        expression = self.view_of(name)
        if expression:
            self.add(f"{self.name()} = {expression}", self.mode())

    def alias(self):
        name = self.some()
        self.aliases.append(self.name())
        self.add(f"{self.aliases[-1]} = {name}.{self.draw.one(('detach()', 'data'))}", self.mode())

    def split(self):
        name = self.some()
        x = self.env[name]
        if not x.ndim:
            return
        dim = self.draw.below(x.ndim)
        n = x.shape[dim]
        options = [f"{name}.split({size}, {dim})" for size in (1, 2) if 1 <= -(-n // size) <= 3]
        options += [f"{name}.chunk(2, {dim})"] if n > 1 else []
        options += [f"{name}.unbind({dim})"] if n <= 3 else []
        if not options:
            return
        call = self.draw.one(options)
        count = len(eval(call, {name: x.detach()}))
        self.add(f"{', '.join(self.name() for _ in range(count))}{',' if count == 1 else ''} = {call}", self.mode())

    def hook(self):
        name, number = self.some(), next(self.names)
        kind = self.draw.below(12)
        if kind < 6:
            factor = self.draw.one((None, None, 2.0, -0.5))
            self.handles.append(f"HANDLES[{number}]")
            self.add(f"HANDLES[{number}] = {name}.register_hook(hook('hook {number}', {factor}))")
        elif kind < 9:
            self.add(f"{name}.retain_grad()")
        elif kind < 10:
            self.add(f"{name}.register_post_accumulate_grad_hook(leaf_hook('leaf hook {number}'))")
        elif kind < 11 and self.handles:
            self.add(f"{self.draw.one(self.handles)}.remove()")
        elif not self.is_leaf(name):
            made = [step.line for step in self.steps if name in step.defines]
            if " * " in made[0] or " + " in made[0] or made[0].endswith((".clone()", ".tanh()", ".sum()")):
                when = self.draw.one(("register_prehook", "register_hook"))
                self.add(f"{name}.grad_fn.{when}(node_hook('node hook {number}'))")

    def saved(self):
        """Begin a block with hooks for saved tensors, or one where they are forbidden; or end one."""
        if self.within and self.draw.chance(50):
            self.within = self.within[:-1]
        elif self.draw.chance(85):
            kind = self.draw.one(("object", "values", "view"))
            pair = f"*hooks('saved {next(self.names)}', '{kind}')"
            self.within += (f"T.autograd.graph.saved_tensors_hooks({pair})",)
        else:
            self.within += ("T.autograd.graph.disable_saved_tensors_hooks('not here')",)

    def function(self):
        name = self.some()
        x = self.env[name]
        refused = overlaps_itself(x)
        inplace = ("Scale", "Scale", "MulInto") if storage(x) not in self.transformed else ()
        line = self.draw.one((*inplace, "Square", "Same", "Flat"))
        if line == "Scale":
            self.add(f"{self.name()} = Scale.apply({name}, {self.draw.one((2.0, -0.5))})", self.mode(), refused)
        elif line == "MulInto":
            operand = self.operand(x)
            self.add(f"{self.name()}, {self.name()} = MulInto.apply({name}, {operand})", self.mode(), refused)
        elif line != "Flat" or x.ndim < 4:
            self.add(f"{self.name()} = {line}.apply({name})", self.mode())

    def region(self):
        name = self.some()
        x = self.env[name]
        function = self.draw.one(("square", "through_view", "total", "product"))
        kind = self.draw.below(10)
        if kind < 5:
            given = f"{name}, {self.operand(x)}" if function == "product" else name
            reentrant = ", reentrant=True" if self.draw.chance(25) else ""
            self.add(f"{self.name()} = checkpoint({function}, {given}{reentrant})", self.mode())
        elif kind < 8 and x.ndim and x.numel():
            if function == "product":
                self.add(f"{self.name()} = T.func.vmap(product)({name}, {name}).clone()", self.mode())
            else:
                dims = "" if self.draw.chance(70) else f", in_dims={self.draw.below(x.ndim)}"
                self.add(f"{self.name()} = T.func.vmap({function}{dims})({name}).clone()", self.mode())
        elif kind < 9:
            self.transformed.add(storage(x))
            self.add(f"{self.name()} = T.func.grad(cubed)({name})", self.mode())
        else:
            self.transformed.add(storage(x))
            self.add(
                f"{self.name()} = T.func.jvp({function if function != 'product' else 'square'}, "
                f"({name},), ({self.operand_alike(x)},))[1]",
                self.mode(),
            )

    def operand_alike(self, x):
        return f"data({tuple(x.shape)}, 9)"

    def dual(self):
        name = self.some()
        if overlaps_itself(self.env[name]):
            return
        self.add(f"{self.name()} = dual({name}, data({tuple(self.env[name].shape)}, {4 + self.draw.below(2)}))")

    def look(self):
        """Read something, so that what is cached may grow old."""
        name = self.some()
        self.add(f"{name}.{self.draw.one(('sum()', 'is_leaf', 'grad_fn', 'requires_grad'))}", self.mode())

    def result(self):
        a, b = self.some(), self.some()
        line = self.draw.one((f"{a}.clone()", f"{a}.tanh()", f"{a} * {b}", f"{a} + {b}", f"{a}.sum()"))
        if b in line[len(a) :] and not _fits(self.env[b].shape, self.env[a].shape):
            line = f"{a} * {a}"
        self.add(f"{self.name()} = {line}", self.mode())

    def move(self):
        """An in-place view operation."""
        name = self.some()
        x = self.env[name]
        options = [f"unsqueeze_({self.draw.below(x.ndim + 1)})"] if x.ndim < 3 else []
        if x.ndim:
            options += [f"transpose_({self.draw.below(x.ndim)}, {self.draw.below(x.ndim)})"] * 2
            options += [f"squeeze_({self.draw.below(x.ndim)})"]
        if 0 < x.ndim <= 2:
            options += ["t_()"] * 3
        leaf = x.requires_grad and self.is_leaf(name)
        if not (self.flavour.forward and self.is_whole(name)):
            self.add(f"{name}.{self.draw.one(options)}", self.mode() or leaf)

    def is_whole(self, name):
        """Whether a tensor was made by an index that takes everything."""
        return any(re.fullmatch(rf"{name} = t\d+\[(:|\.\.\.)(, (:|\.\.\.))*\]", step.line) for step in self.steps)

    def write(self):
        name = self.some()
        x = self.env[name]
        if storage(x) in self.transformed:
            return
        refused = overlaps_itself(x)
        kind = self.draw.below(10)
        if kind < 2:
            line = f"{name}.{self.draw.one(ALONE if refused else ALONE + FILLS)}"
        elif kind < 3 and x.ndim:
            line, refused = self.assignment(name, x)
        else:
            operand = self.operand(x)
            line = f"{name}.{self.draw.one(('mul_', 'mul_', 'add_', 'copy_', 'sub_'))}({operand})"
        if line:
            self.add(line, self.mode(), refused)

    def assignment(self, name, x):
        n = x.shape[0]
        if not x.numel():
            return None, False
        index = self.draw.one((f"{self.draw.below(n)}" if n else ":", "::2", "...", "1:", "..., 0"))
        part = eval(f"x[{index}]", {"x": x.detach()})
        value = self.draw.one(("0.5", self.operand(part)))
        return (f"{name}[{index}] = {value}", overlaps_itself(part)) if part.numel() else (None, False)

    def operand(self, x):
        """Something that broadcasts to the shape of `x` and does not overlap it partly."""
        fitting = [n for n in self.live() if _fits(self.env[n].shape, x.shape) and not overlaps_partly(self.env[n], x)]
        if self.flavour.forward:
            fitting = [n for n in fitting if storage(self.env[n]) != storage(x)]
        if not fitting or self.draw.chance(15):
            return f"data({tuple(x.shape)}, 9)"
        return self.draw.one(list(reversed(fitting)))

    def view_of(self, name):
        """An expression for a view of a tensor, None if none was found."""
        x, draw = self.env[name], self.draw
        if x.ndim > 4:
            return None
        known = storage(x) not in self.running.scattered
        options = ["alias", "unsqueeze", "expand"]
        if x.ndim:
            options += ["select"] * 4 + ["narrow"] * 3 + ["slice"] * 3 + ["transpose"] * 3
            options += ["squeeze", "unfold", "permute"]
        if x.ndim >= 2:
            options += ["diagonal"] * 2 + ["t"] * (2 if x.ndim == 2 else 0)
        if known:
            options += ["view"] * 3 + ["reshape"] * 2
        if known and not self.flavour.forward and self.strides_are_known(name):
            options += ["as_strided"] * 2
        kind = draw.one(options)
        if kind == "alias":
            return f"{name}.view_as({name})" if known else f"{name}[...]"
        if kind == "t":
            return f"{name}.t()"
        if kind == "unsqueeze":
            return f"{name}.unsqueeze({draw.below(x.ndim + 1)})" if x.ndim < 4 else None
        if kind == "expand":
            return f"{name}.expand({(2, *x.shape)})" if x.ndim < 3 and draw.chance(50) else None
        if kind in ("view", "reshape"):
            shape = draw.one([(-1,), (x.numel(),), (2, -1), (-1, 2), (1, -1)])
            return f"{name}.{kind}({shape})"
        if kind == "as_strided":
            return self.strided(name, x)
        if kind == "diagonal":
            i = draw.below(x.ndim)
            j = (i + 1 + draw.below(x.ndim - 1)) % x.ndim
            return f"{name}.diagonal({draw.one((0, 0, 1, -1))}, {i}, {j})"
        dim = draw.below(x.ndim)
        n = x.shape[dim]
        if kind == "select":
            return f"{name}.select({dim}, {draw.below(n)})" if n else None
        if kind == "narrow":
            start = draw.below(n) if n else 0
            return f"{name}.narrow({dim}, {start}, {1 + draw.below(n - start)})" if n else None
        if kind == "slice":
            index = draw.one(("::2", "1:", ":-1", "1::2", ":2", ":"))
            return f"{name}[{':, ' * dim}{index}]"
        if kind == "transpose":
            return f"{name}.transpose({dim}, {draw.below(x.ndim)})"
        if kind == "permute":
            return f"{name}.permute({tuple(np.roll(range(x.ndim), dim).tolist())})"
        if kind == "squeeze":
            return f"{name}.squeeze({dim})"
        assert kind == "unfold"
        return f"{name}.unfold({dim}, 2, {draw.one((2, 2, 2, 1))})" if n >= 2 else None

    def strides_are_known(self, name):
        """Whether `as_strided` of this tensor means the same in both: a whole storage, no alias, or a view of one."""
        root = self.env[name] if self.env[name]._base is None else self.env[name]._base
        if any(root is self.env[alias] for alias in self.aliases if alias in self.env):
            return False
        return len(places(root)) * root.element_size() == root.untyped_storage().nbytes()

    def strided(self, name, x):
        """An `as_strided` that stays within the elements of the tensor."""
        inside = set(places(x))
        options = []
        for size, stride in (
            ((2,), (1,)),
            ((2,), (2,)),
            ((2, 2), (2, 1)),
            ((2, 2), (1, 2)),
            ((2,), (3,)),
            ((2, 2), (1, 1)),
        ):
            for offset in sorted(inside):
                reached = {offset + sum(i * s for i, s in zip(index, stride)) for index in np.ndindex(*size)}
                if reached <= inside:
                    options.append(f"{name}.as_strided({size}, {stride}, {offset})")
        return self.draw.one(options) if options else None


def _fits(shape, to):
    """Whether a shape broadcasts to another."""
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to)))


def generate(draw, flavour, length):
    """A program of about `length` steps, and what torch did with it."""
    return Generator(draw, flavour).program(length)
