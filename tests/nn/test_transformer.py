"""MultiheadAttention and the transformer's modules against torch's, with the same weights."""

import copy
import pickle

import pytest
import torch

import xgrad

from ..oracle import as_torch, data, same_error


def filled(T, m):
    """Give the parameters the same numbers in both libraries."""
    m = m.double()
    with T.no_grad():
        for i, (_, p) in enumerate(sorted(m.named_parameters())):
            p.copy_(data(T, tuple(p.shape), i))
    return m


def run(T, m, *inputs, **masks):
    """Results, and the gradients of parameters and inputs."""
    out = m(*inputs, **masks)
    out = [t for t in (out if isinstance(out, tuple) else (out,)) if t is not None]
    sum((t * data(T, tuple(t.shape), 30 + i)).sum() for i, t in enumerate(out)).backward()
    return out, [(n, p.grad) for n, p in sorted(m.named_parameters())], [x.grad for x in inputs]


def attention(T, *sizes, **options):
    return filled(T, T.nn.MultiheadAttention(*(sizes or (4, 2)), **options))


def q(T, seed=1, length=3, batch=2, size=4, first=False):
    return data(T, (batch, length, size) if first else (length, batch, size), seed, True)


def itself(T, m, **kwargs):
    x = q(T, first=m.batch_first)
    return run(T, m, x, x, x, **kwargs)


def causal(T, n=3):
    return T.nn.Transformer.generate_square_subsequent_mask(n, dtype=T.float64)


def padding(T):
    return T.tensor([[False, False, True], [False, False, False]])


ATTENTION = {
    "self": lambda T: itself(T, attention(T)),
    "cross": lambda T: run(T, attention(T), q(T), q(T, 2), q(T, 3)),
    "batch first": lambda T: itself(T, attention(T, batch_first=True), need_weights=False),
    "sizes": lambda T: run(T, attention(T, 4, 2, kdim=3, vdim=2), q(T), q(T, 2, size=3), q(T, 3, size=2)),
    "no bias": lambda T: itself(T, attention(T, bias=False), average_attn_weights=False),
    "extra": lambda T: itself(T, attention(T, add_bias_kv=True, add_zero_attn=True)),
    "unbatched": lambda T: run(T, attention(T, batch_first=True), *(data(T, (3, 4), i, True) for i in range(3))),
    "padded": lambda T: itself(T, attention(T), key_padding_mask=padding(T)),
    "causal": lambda T: itself(T, attention(T), attn_mask=causal(T), is_causal=True, need_weights=False),
    "masked": lambda T: itself(T, attention(T, batch_first=True), attn_mask=T.ones(3, 3).triu(1).bool()),
    "evaluation": lambda T: itself(T, attention(T, dropout=0.5, batch_first=True).eval(), need_weights=False),
    "looks": lambda T: [
        repr(attention(T)), [(n, tuple(p.shape)) for n, p in attention(T, add_bias_kv=True).state_dict().items()],
        list(attention(T, 4, 2, kdim=3, bias=False).state_dict()), T.nn.MultiheadAttention(4, 2).in_proj_bias,
    ],
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("program", ATTENTION.values(), ids=ATTENTION)
def test_attention_is_that_of_torch(program):
    as_torch(program)


SMALL = {"dim_feedforward": 3, "dropout": 0.0}


def encoder_layer(T, **options):
    return filled(T, T.nn.TransformerEncoderLayer(4, 2, **SMALL, **options))


def decoder_layer(T, **options):
    return filled(T, T.nn.TransformerDecoderLayer(4, 2, **SMALL, **options))


def model(T, **options):
    return filled(T, T.nn.Transformer(4, 2, 1, 2, **SMALL, **options))


def two(T):
    return q(T), q(T, 2, length=2)


TRANSFORMERS = {
    "encoder layer": lambda T: run(T, encoder_layer(T), q(T)),
    "norm first": lambda T: run(T, encoder_layer(T, norm_first=True, activation="gelu"), q(T)),
    "batch first": lambda T: run(T, encoder_layer(T, batch_first=True, bias=False), q(T, first=True)),
    "padded": lambda T: run(T, encoder_layer(T), q(T), src_key_padding_mask=padding(T)),
    "causal": lambda T: run(T, encoder_layer(T), q(T), src_mask=causal(T), is_causal=True),
    "another activation": lambda T: run(T, encoder_layer(T, activation=T.tanh), q(T)),
    "unbatched": lambda T: run(T, encoder_layer(T, batch_first=True), data(T, (3, 4), 1, True)),
    "decoder layer": lambda T: run(T, decoder_layer(T), *two(T), tgt_mask=causal(T)),
    "decoder's norm first": lambda T: run(T, decoder_layer(T, norm_first=True, layer_norm_eps=0.1), *two(T)),
    "encoder": lambda T: run(
        T, filled(T, T.nn.TransformerEncoder(encoder_layer(T), 2, T.nn.LayerNorm(4), enable_nested_tensor=False)),
        q(T), mask=causal(T),
    ),
    "decoder": lambda T: run(
        T, filled(T, T.nn.TransformerDecoder(decoder_layer(T), 2)), *two(T), tgt_mask=causal(T),
        memory_key_padding_mask=T.tensor([[False, True], [False, False]]),
    ),
    "evaluation": lambda T: run(
        T, filled(T, T.nn.TransformerEncoderLayer(4, 2, 3, dropout=0.5, batch_first=True)).eval(), q(T, first=True)
    ),
    "all": lambda T: run(T, model(T), *two(T), tgt_mask=causal(T, 2)),
    "all, batch first": lambda T: run(T, model(T, batch_first=True), q(T, first=True), q(T, 2, 2, first=True)),
    "mask": lambda T: [T.nn.Transformer.generate_square_subsequent_mask(3), causal(T, 2)],
    "looks": lambda T: [
        repr(model(T, batch_first=True)).replace("(activation): ", ""), list(model(T).state_dict()),
        [(n, tuple(p.shape)) for n, p in decoder_layer(T, bias=False).state_dict().items()],
    ],
    "clones": lambda T: [
        len({id(p) for p in T.nn.TransformerDecoder(decoder_layer(T), 2).parameters()}),
        run(T, pickle.loads(pickle.dumps(encoder_layer(T))), q(T)), run(T, copy.deepcopy(encoder_layer(T)), q(T)),
    ],
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("program", TRANSFORMERS.values(), ids=TRANSFORMERS)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_transformers_are_those_of_torch(program):
    as_torch(program, rtol=1e-9, atol=1e-11)


def encoder(T, **options):
    chosen = {name: options.pop(name) for name in ("enable_nested_tensor", "mask_check") if name in options}
    layer = T.nn.TransformerEncoderLayer(4, 2, 3, batch_first=True, **options)
    return filled(T, T.nn.TransformerEncoder(layer, 2, T.nn.LayerNorm(4), **chosen)).eval()


def evaluated(T, m, padded=None, **masks):
    with T.no_grad():
        x = data(T, (3, 4, 4), 1)
        end = [[False] * 4, [False, False, True, True], [False, True, True, True]]
        return m(x, src_key_padding_mask=T.tensor(end) if padded is None else padded, **masks)


def added(T):
    return T.tensor([[0.0, 0.0, 0.0, -float("inf")]] * 3, dtype=T.float64)


def finite(T, mixed=False):
    end = [[0.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.5, -9.0], [0.0, -0.5, 0.0, -float("inf")]]
    return T.tensor(end[: 3 if mixed else 2] + end[: 0 if mixed else 1], dtype=T.float64)


def in_the_middle(T):
    return T.tensor([[False, True, False, True]] * 3)


PADDED = {
    "at the end": lambda T: evaluated(T, encoder(T)),
    "added": lambda T: evaluated(T, encoder(T), added(T)),
    "finite numbers": lambda T: evaluated(T, encoder(T), finite(T)),
    "finite numbers in the middle": lambda T: evaluated(T, encoder(T), finite(T, True)),
    "finite numbers and a mask": lambda T: evaluated(T, encoder(T), finite(T, True), mask=causal(T, 4)),
    "finite numbers, norm first": lambda T: evaluated(T, encoder(T, norm_first=True), finite(T)),
    "finite numbers, slow": lambda T: evaluated(T, encoder(T, activation=T.tanh), finite(T)),
    "finite numbers in training": lambda T: evaluated(T, encoder(T, dropout=0.0).train(), finite(T)),
    "finite numbers of a layer": lambda T: evaluated(T, encoder(T).layers[0], finite(T)),
    "gelu": lambda T: evaluated(T, encoder(T, activation="gelu")),
    "in the middle": lambda T: evaluated(T, encoder(T), in_the_middle(T)),
    "not looked at": lambda T: evaluated(T, encoder(T, mask_check=False)),
    "not nested": lambda T: evaluated(T, encoder(T, enable_nested_tensor=False)),
    "norm first": lambda T: evaluated(T, encoder(T, norm_first=True)),
    "another activation": lambda T: evaluated(T, encoder(T, activation=T.tanh)),
    "a mask too": lambda T: evaluated(T, encoder(T), added(T), mask=causal(T, 4)),
    "training": lambda T: evaluated(T, encoder(T, dropout=0.0).train()),
    "a gradient": lambda T: encoder(T)(data(T, (3, 4, 4), 1), src_key_padding_mask=added(T)),
    "frozen": lambda T: encoder(T).requires_grad_(False)(data(T, (3, 4, 4), 1), src_key_padding_mask=added(T)),
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("program", PADDED.values(), ids=PADDED)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True", "ignore:The PyTorch API of nested tensors")
def test_an_encoder_in_evaluation_leaves_at_padding_what_torch_leaves(program):
    as_torch(program, rtol=1e-9, atol=1e-11)


def test_a_compiled_encoder_pads_as_the_eager_one():
    m = encoder(xgrad)
    compiled = xgrad.compile(lambda: evaluated(xgrad, m))
    assert xgrad.allclose(compiled(), evaluated(xgrad, m), rtol=1e-9)


@pytest.mark.parametrize("options", [{"norm_first": True}, {"batch_first": False}, {"bias": False}, {"nhead": 1}])
def test_an_encoder_says_why_it_is_not_nested(options):
    texts = []
    for T in (torch, xgrad):
        layer = T.nn.TransformerEncoderLayer(**{"d_model": 4, "nhead": 2, "batch_first": True, **options})
        with pytest.warns(UserWarning, match="self.use_nested_tensor is False because encoder_layer.") as caught:
            T.nn.TransformerEncoder(layer, 1)
        texts.append(str(caught[0].message))
    assert texts[0] == texts[1]


ERRORS = {
    "heads": (lambda T: T.nn.MultiheadAttention(4, 3), "embed_dim must be divisible by num_heads"),
    "none": (lambda T: T.nn.MultiheadAttention(0, 1), "embed_dim and num_heads must be greater than 0"),
    "size": (lambda T: attention(T)(*[T.ones(3, 2, 5).double()] * 3), "expecting embedding dimension of 4, but"),
    "activation": (lambda T: encoder_layer(T, activation="x"), "activation should be relu/gelu, not x"),
    "features": (lambda T: model(T)(T.ones(3, 2, 5), T.ones(3, 2, 5)), "feature number of src and tgt must be equal"),
    "batch": (lambda T: model(T)(T.ones(3, 2, 4), T.ones(3, 1, 4)), "the batch number of src and tgt must be equal"),
    "no mask": (
        lambda T: encoder_layer(T)(q(T), is_causal=True), "Need attn_mask if specifying the is_causal hint",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize(("program", "match"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_torch_says(program, match):
    same_error(program, match)


def test_weights_start_as_in_torch():
    def program(T):
        T.manual_seed(0)
        m = T.nn.MultiheadAttention(16, 2)
        bound = (6 / (16 * 4)) ** 0.5
        large = m.in_proj_weight.abs().max()
        return bool(large <= bound), bool(large > 0.9 * bound), m.in_proj_bias, m.out_proj.bias

    as_torch(program)


def test_a_step_of_a_layer_compiles():
    m = encoder_layer(xgrad)
    x, mask = q(xgrad).detach(), causal(xgrad)

    @xgrad.compile
    def step(x):
        out = m(x, src_mask=mask)
        (out * out).sum().backward()
        return out

    assert bool(xgrad.allclose(step(x), m(x, src_mask=mask)))
    assert m.linear1.weight.grad is not None


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_copies_keep_an_activation_that_is_a_module(name):
    """The stacks copy their layer; PyTorch's own decoder layer has ReLU in its copies."""
    layer = getattr(xgrad.nn, name)(4, 2, 8, 0.0, activation=xgrad.nn.GELU())
    stack = getattr(xgrad.nn, name.removesuffix("Layer"))(layer, 2)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), *stack.layers):
        assert type(copied.activation) is xgrad.nn.GELU
        assert "activation" not in vars(copied)
