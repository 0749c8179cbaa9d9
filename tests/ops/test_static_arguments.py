"""Static arguments of wrong kinds, one by one, for every operator that PyTorch's schemas and xgrad both have.

For each schema a call is sought that torch accepts; then each int, bool, dimension and size of it gets what has another
kind.  What torch refuses by a TypeError has to be refused here: nothing is compiled for it, so this is cheap.
"""

import inspect
import itertools
import warnings

import numpy as np
import pytest
import torch

import xgrad
from xgrad.dispatch.tables import FUNCTIONS

WRONG = {
    "int": [True, 1.5, 2.0, "a", [1], np.float64(1.0)],
    "bool": [1, 0, 1.5, "a", None, [True]],
    "List[int]": [1.5, "a", [1.0], ["a"]],
    "Optional[int]": [1.5, 2.0, "a", [1]],
    "Optional[bool]": [1, "a"],
    "Optional[List[int]]": [1.5, "a", ["a"]],
}
SHAPES = [(3, 3), (4,), (1, 2, 4, 4), (1, 2, 6)]
INTS = {"int": [1, 0, 2], "List[int]": [[1], [0, 1], [1, 1]], "number": [1], "float": [0.5], "bool": [True]}

# Not called: they act on the process, or no public function of that name exists.
SKIPPED = frozenset(["device", "manual_seed", "save", "seed", "set_data", "set_grad_enabled", "set_printoptions"])

# Not ints for those who call, but in the schemas.
NO_NUMBERS = frozenset(["dtype", "layout", "memory_format"])

# (operator, argument): why xgrad accepts what torch refuses.
EXCEPTIONS: dict[tuple[str, str], str] = {
    **{(name, "unbiased"): "None stands for what is not given" for name in ("std", "std_mean", "var", "var_mean")},
    **{
        (name, which): "an int stands for a sequence of one, beside a sequence too"
        for name in ("movedim", "moveaxis") for which in ("source", "destination")
    },
    ("group_norm", "cudnn_enabled"): "there is no cuDNN to be asked",
    ("poisson_nll_loss", "reduction"): "it is nn.functional's, in which it is a word; ATen's number is looked up",
}  # fmt: skip

# What torch refuses with a TypeError for its first argument and xgrad with another error: a text among data, a list of
# numbers or none where tensors are joined, another argument that is looked at first.
OTHER_ERRORS = {
    ".as_tensor", ".asarray", ".tensor", ".scalar_tensor", ".sparse_bsc_tensor", ".sparse_bsr_tensor",
    ".sparse_csc_tensor", ".sparse_csr_tensor", ".sparse_compressed_tensor", ".cat", ".concat", ".concatenate",
    ".stack", ".column_stack", ".dstack", ".hstack", ".row_stack", ".vstack", "linalg.multi_dot", ".lu_solve",
    ".lu_unpack", "linalg.lu_solve",
}  # fmt: skip


def found(T, name):
    for prefix in ("linalg", "fft", "special"):
        if name.startswith(prefix + "_") and hasattr(getattr(T, prefix), name[len(prefix) + 1 :]):
            return getattr(getattr(T, prefix), name[len(prefix) + 1 :])
    for place in (T, T.Tensor, T.nn.functional):
        if hasattr(place, name):
            return getattr(place, name)
    return None


def schemas():
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        odd = name == schema.name or name[0] == "_" or name[-1] == "_" or "backward" in name or name in SKIPPED
        if odd or any(g.is_out or "Dimname" in str(g.type) for g in schema.arguments):
            continue
        if any(str(g.type) in WRONG for g in schema.arguments):
            yield name, schema.arguments


def tensors():
    return [np.random.default_rng(1).uniform(0.1, 0.9, shape) for shape in SHAPES] + [np.array([0, 1, 2])]


def made(T, value):
    return T.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def refusal(T, function, args, named):
    try:
        function(*[made(T, a) for a in args], **named)
    except Exception as error:
        return error
    return None


def base(function, arguments):
    """Arguments, without those that have a default, that torch accepts; None if none is found."""
    needed = [g for g in arguments if not g.has_default_value()]
    kinds = [str(g.type) for g in needed]
    if any(g.kwarg_only for g in needed) or not all(k == "Tensor" or k in INTS for k in kinds):
        return None
    for x in tensors():
        for args in itertools.islice(itertools.product(*[[x] if k == "Tensor" else INTS[k] for k in kinds]), 12):
            if refusal(torch, function, args, {}) is None:
                return list(args)
    return None


def accepted():
    """What torch refuses by a TypeError and xgrad accepts: (operator, argument, value), and how many were tried."""
    wrong, tried = [], 0
    for name, arguments in schemas():
        theirs, ours = found(torch, name), found(xgrad, name)
        given = None if theirs is None or ours is None else base(theirs, arguments)
        if given is None:
            continue
        for i, argument in enumerate(arguments):
            for value in WRONG.get(str(argument.type), ()) if argument.name not in NO_NUMBERS else ():
                args, named = list(given), {}
                if i < len(args):
                    args[i] = value
                else:
                    named = {argument.name: value}
                if isinstance(refusal(torch, theirs, args, named), TypeError):
                    tried += 1
                    if refusal(xgrad, ours, args, named) is None:
                        wrong.append((name, argument.name, value))
    return wrong, tried


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_what_torch_refuses_for_its_kind_is_refused():
    with warnings.catch_warnings():
        wrong, tried = accepted()
    assert tried > 2000
    silent = [case for case in wrong if case[:2] not in EXCEPTIONS]
    assert not silent, silent
    assert {case[:2] for case in wrong} == set(EXCEPTIONS), "an exception is none any more"


# -- the first argument ------------------------------------------------------------------------------------------------


def filled(function, needed):
    """Arguments after the first that torch accepts with a tensor; ones where none were found."""
    values = [1, 0, torch.ones(2, 2), (0,), (0, 1), 0.5]
    for rest in itertools.islice(itertools.product(values, repeat=needed), 40):
        for first in (torch.ones(2, 2), torch.ones(2)):
            if refusal(torch, function, (first, *rest), {}) is None:
                return [r.numpy() if isinstance(r, torch.Tensor) else r for r in rest]
    return [1] * needed


def first_arguments():
    """Calls whose first argument torch refuses with a TypeError: (function, value, our error)."""
    for namespace, functions in FUNCTIONS.items():
        for name, ours in functions.items():
            theirs = torch
            for part in (*namespace.split("."), name) if namespace else (name,):
                theirs = getattr(theirs, part, None)
            if theirs is None or name.startswith("_") or name in SKIPPED:
                continue
            parameters = list(inspect.signature(ours).parameters.values())[1:]
            rest = filled(theirs, sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters))
            for value in (None, "a", [1.0]):
                if isinstance(refusal(torch, theirs, [value, *rest], {}), TypeError):
                    yield f"{namespace}.{name}", value, refusal(xgrad, ours, [value, *rest], {})


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_first_argument_that_is_no_tensor_is_a_type_error():
    calls = list(first_arguments())
    assert len(calls) > 1500
    assert not [call for call in calls if isinstance(call[2], AttributeError)]
    wrong = {name for name, _, error in calls if not isinstance(error, TypeError)}
    assert wrong == OTHER_ERRORS
