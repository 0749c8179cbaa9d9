"""Examples of functions that are made of other operators, and so have no samples of their own.

A line is `name: expression`, the name as in the table of functions ("linalg.inv", "Tensor.to").  The variables of
`VARIABLES` that an expression reads are set before it.  Results that are drawn at random show their shape.  Examples
that switch JAX's 64-bit mode on, or warn, are no doctests.
"""

VARIABLES = {
    "x": "xgrad.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])",
    "y": "xgrad.tensor([[0.5, 1.0, 1.5], [2.0, 2.5, 3.0]])",
    "v": "xgrad.tensor([3.0, 1.0, 2.0])",
    "a": "xgrad.tensor([[2.0, 1.0], [1.0, 3.0]])",
    "b": "xgrad.tensor([[1.0], [2.0]])",
    "k": "xgrad.tensor([1, 0, 1, 2])",
    "p": "xgrad.tensor([0.2, 0.3, 0.5])",
    "z": "xgrad.tensor([1 + 2j, 3 - 1j])",
    "line": "xgrad.arange(8.0).reshape(1, 2, 4)",
    "image": "xgrad.arange(16.0).reshape(1, 1, 4, 4)",
    "volume": "xgrad.arange(8.0).reshape(1, 1, 2, 2, 2)",
    "s": "xgrad.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()",
}

UNTESTED = ("jax_enable_x64", "xgrad.range(", "v.storage()")

EXAMPLES = """
numel: xgrad.numel(x)
is_complex: xgrad.is_complex(z), xgrad.is_complex(xgrad.float32)
is_signed: xgrad.is_signed(x), xgrad.is_signed(xgrad.uint8)
is_tensor: xgrad.is_tensor(x), xgrad.is_tensor([1.0])
is_same_size: xgrad.is_same_size(x, y)
rsub: xgrad.rsub(v, 1)
true_divide: xgrad.true_divide(k, 2)
as_tensor: xgrad.as_tensor([1.0, 2.0])
asarray: xgrad.asarray([1, 2])
frombuffer: xgrad.frombuffer(bytearray([1, 0, 2, 0]), dtype=xgrad.int16)
from_numpy: import numpy; xgrad.from_numpy(numpy.ones(2, numpy.float32))
scalar_tensor: xgrad.scalar_tensor(2.5)
zeros: xgrad.zeros(2, 3)
zeros_like: xgrad.zeros_like(x)
ones: xgrad.ones(2, 3)
ones_like: xgrad.ones_like(x)
empty: xgrad.empty(2, 3).shape
empty_like: xgrad.empty_like(x).shape
full_like: xgrad.full_like(v, 0.5)
empty_strided: xgrad.empty_strided((2, 3), (1, 2)).stride()
empty_permuted: xgrad.empty_permuted((2, 3), (1, 0)).stride()
range: xgrad.range(1, 3)
linspace: xgrad.linspace(0, 1, 5)
logspace: xgrad.logspace(0, 2, 3)
eye: xgrad.eye(2)
tril_indices: xgrad.tril_indices(2, 2)
triu_indices: xgrad.triu_indices(2, 2)
zero_: xgrad.zero_(v)
take_along_dim: xgrad.take_along_dim(x, xgrad.argsort(x, dim=1), dim=1)
masked_select: xgrad.masked_select(x, x > 0)
argwhere: xgrad.argwhere(k)
nonzero: xgrad.nonzero(k)
unravel_index: xgrad.unravel_index(xgrad.tensor([1, 5]), (2, 3))
index_put_: xgrad.index_put_(v, (xgrad.tensor([0, 2]),), xgrad.tensor([7.0, 8.0]))
index_put: xgrad.index_put(v, (xgrad.tensor([0, 2]),), xgrad.tensor([7.0, 8.0]))
chain_matmul: xgrad.chain_matmul(a, a, b)
svd_lowrank: xgrad.svd_lowrank(y, q=1)[1].shape
pca_lowrank: xgrad.pca_lowrank(y, q=1)[1].shape
lu: xgrad.lu(a)[0]
lu_solve: xgrad.lu_solve(b, *xgrad.linalg.lu_factor(a))
norm: xgrad.norm(x, dim=1)
frobenius_norm: xgrad.frobenius_norm(x, (0, 1))
nuclear_norm: xgrad.nuclear_norm(a)
norm_except_dim: xgrad.norm_except_dim(y)
vander: xgrad.vander(v)
inverse: xgrad.inverse(a)
linalg.inv: xgrad.linalg.inv(a)
matrix_power: xgrad.matrix_power(a, 2)
cholesky: xgrad.cholesky(a)
qr: xgrad.qr(a).R.shape
svd: xgrad.svd(a).S
rrelu: xgrad.rrelu(v - 2, 0.25, 0.25)
rrelu_: xgrad.rrelu_(v, 0.25, 0.25)
batch_norm: xgrad.nn.functional.batch_norm(y, None, None, training=True)
instance_norm: xgrad.nn.functional.instance_norm(line)
lstm_cell: w = xgrad.ones(12, 2); u = xgrad.ones(12, 3); h = xgrad.zeros(1, 3); \
xgrad.lstm_cell(xgrad.ones(1, 2), (h, h), w, u)[0].shape
rnn_tanh: w = xgrad.ones(3, 2); u = xgrad.ones(3, 3); h = xgrad.zeros(1, 1, 3); \
xgrad.rnn_tanh(xgrad.ones(4, 1, 2), h, (w, u), False, 1, 0.0, False, False, False)[0].shape
rnn_relu: w = xgrad.ones(3, 2); u = xgrad.ones(3, 3); h = xgrad.zeros(1, 1, 3); \
xgrad.rnn_relu(xgrad.ones(4, 1, 2), h, (w, u), False, 1, 0.0, False, False, False)[0].shape
gru: w = xgrad.ones(9, 2); u = xgrad.ones(9, 3); h = xgrad.zeros(1, 1, 3); \
xgrad.gru(xgrad.ones(4, 1, 2), h, (w, u), False, 1, 0.0, False, False, False)[0].shape
lstm: w = xgrad.ones(12, 2); u = xgrad.ones(12, 3); h = xgrad.zeros(1, 1, 3); \
xgrad.lstm(xgrad.ones(4, 1, 2), (h, h), (w, u), False, 1, 0.0, False, False, False)[0].shape
nn.functional.multi_head_attention_forward: q = xgrad.ones(3, 1, 2); w = xgrad.ones(6, 2); o = xgrad.ones(2, 2); \
xgrad.nn.functional.multi_head_attention_forward(q, q, q, 2, 1, w, None, None, None, False, 0.0, o, None)[0].shape
hash_tensor: import jax; jax.config.update("jax_enable_x64", True); xgrad.hash_tensor(v)
abs_: xgrad.abs_(v - 2)
equal: xgrad.equal(x, x)
float_power: import jax; jax.config.update("jax_enable_x64", True); xgrad.float_power(v, 2)
float_power_: import jax; jax.config.update("jax_enable_x64", True); z.cdouble().float_power_(2)
feature_alpha_dropout: xgrad.feature_alpha_dropout(line, 0.5).shape
feature_dropout: xgrad.feature_dropout(line, 0.5, True).shape
feature_dropout_: xgrad.feature_dropout_(line, 0.5, True).shape
dropout_: xgrad.dropout_(v, 0.5, False)
alpha_dropout: xgrad.nn.functional.alpha_dropout(v, 0.5).shape
alpha_dropout_: xgrad.alpha_dropout_(v, 0.5, False)
feature_alpha_dropout_: xgrad.feature_alpha_dropout_(line, 0.5, True).shape
rand: xgrad.rand(2, 3).shape
rand_like: xgrad.rand_like(x).shape
randn: xgrad.randn(2, 3).shape
randn_like: xgrad.randn_like(x).shape
randint: xgrad.randint(0, 10, (2, 3)).shape
randint_like: xgrad.randint_like(x, 10).shape
randperm: xgrad.randperm(4).shape
multinomial: xgrad.multinomial(p, 2).shape
bernoulli: xgrad.bernoulli(p).shape
binomial: xgrad.binomial(v, p).shape
normal: xgrad.normal(v, p).shape
poisson: xgrad.poisson(v).shape
median: xgrad.median(x, dim=1).values
nanmedian: xgrad.nanmedian(x, dim=1).values
mode: xgrad.mode(k).values
narrow: xgrad.narrow(x, 1, 0, 2)
permute: xgrad.permute(line, (2, 0, 1)).shape
transpose: xgrad.transpose(x, 0, 1)
swapaxes: xgrad.swapaxes(x, 0, 1)
t: xgrad.t(x)
movedim: xgrad.movedim(line, 0, 2).shape
adjoint: xgrad.adjoint(x)
flatten: xgrad.flatten(x)
ravel: xgrad.ravel(x)
unflatten: xgrad.unflatten(k, 0, (2, 2))
squeeze: xgrad.squeeze(line).shape
unsqueeze: xgrad.unsqueeze(v, 1)
diagonal: xgrad.diagonal(a)
as_strided: xgrad.as_strided(x, (2, 2), (1, 2))
positive: xgrad.positive(v)
detach: xgrad.detach(v)
detach_: xgrad.detach_(v)
alias: xgrad.alias(v)
broadcast_to: xgrad.broadcast_to(v, (2, 3))
broadcast_tensors: [t.shape for t in xgrad.broadcast_tensors(v, b)]
broadcast_shapes: xgrad.broadcast_shapes((2, 1), (3,))
meshgrid: xgrad.meshgrid(v, xgrad.tensor([0.0, 1.0]), indexing="ij")[0]
atleast_1d: xgrad.atleast_1d(xgrad.tensor(1.0))
atleast_2d: xgrad.atleast_2d(v)
atleast_3d: xgrad.atleast_3d(v).shape
hstack: xgrad.hstack((v, v))
vstack: xgrad.vstack((v, v))
dstack: xgrad.dstack((v, v)).shape
column_stack: xgrad.column_stack((v, v))
cartesian_prod: xgrad.cartesian_prod(xgrad.tensor([1, 2]), xgrad.tensor([3, 4]))
combinations: xgrad.combinations(v)
msort: xgrad.msort(v)
unique: xgrad.unique(k)
unique_consecutive: xgrad.unique_consecutive(k)
bucketize: xgrad.bucketize(v, xgrad.tensor([1.5, 2.5]))
view_as_real: xgrad.view_as_real(z)
view_as_complex: xgrad.view_as_complex(a)
real: xgrad.real(z)
imag: xgrad.imag(z)
conj: xgrad.conj(z)
conj_physical: xgrad.conj_physical(z)
is_conj: xgrad.is_conj(z.conj())
is_neg: xgrad.is_neg(z.conj().imag)
resolve_conj: xgrad.resolve_conj(z.conj())
resolve_neg: xgrad.resolve_neg(z.conj().imag)
conj_physical_: xgrad.conj_physical_(z)
tile: xgrad.tile(v, (2,))
repeat_interleave: xgrad.repeat_interleave(v, 2)
fliplr: xgrad.fliplr(x)
flipud: xgrad.flipud(x)
flip: xgrad.flip(x, (1,))
roll: xgrad.roll(v, 1)
diag: xgrad.diag(v)
diagflat: xgrad.diagflat(v)
resize_as_: xgrad.resize_as_(v, b).shape
split: xgrad.split(v, 2)
split_with_sizes: xgrad.split_with_sizes(v, (1, 2))
chunk: xgrad.chunk(v, 2)
tensor_split: xgrad.tensor_split(v, (1,))
hsplit: xgrad.hsplit(x, (1,))
vsplit: xgrad.vsplit(x, 2)
dsplit: [t.shape for t in xgrad.dsplit(line, 2)]
unbind: xgrad.unbind(a)
alias_copy: xgrad.alias_copy(v)
as_strided_copy: xgrad.as_strided_copy(x, (2, 2), (1, 2))
detach_copy: xgrad.detach_copy(v)
diagonal_copy: xgrad.diagonal_copy(a)
expand_copy: xgrad.expand_copy(v, (2, 3))
narrow_copy: xgrad.narrow_copy(x, 1, 0, 2)
permute_copy: xgrad.permute_copy(x, (1, 0))
select_copy: xgrad.select_copy(x, 0, 1)
split_copy: xgrad.split_copy(v, 2)
split_with_sizes_copy: xgrad.split_with_sizes_copy(v, (1, 2))
squeeze_copy: xgrad.squeeze_copy(b)
t_copy: xgrad.t_copy(x)
transpose_copy: xgrad.transpose_copy(x, 0, 1)
unbind_copy: xgrad.unbind_copy(a)
unfold_copy: xgrad.unfold_copy(v, 0, 2, 1)
unsqueeze_copy: xgrad.unsqueeze_copy(v, 1)
view_copy: xgrad.view_copy(x, (3, 2))
view_as_complex_copy: xgrad.view_as_complex_copy(a)
view_as_real_copy: xgrad.view_as_real_copy(z)
unsafe_chunk: xgrad.unsafe_chunk(v, 2)
unsafe_split: xgrad.unsafe_split(v, 2)
unsafe_split_with_sizes: xgrad.unsafe_split_with_sizes(v, (1, 2))
slice_copy: xgrad.slice_copy(v, 0, 1, 3)
select_scatter: xgrad.select_scatter(a, xgrad.zeros(2), 0, 1)
slice_scatter: xgrad.slice_scatter(a, xgrad.zeros(1, 2), 0, 1, 2)
diagonal_scatter: xgrad.diagonal_scatter(a, xgrad.zeros(2))
as_strided_scatter: xgrad.as_strided_scatter(a, xgrad.zeros(2), (2,), (1,))
bartlett_window: xgrad.bartlett_window(4)
blackman_window: xgrad.blackman_window(4)
hann_window: xgrad.hann_window(4)
hamming_window: xgrad.hamming_window(4)
kaiser_window: xgrad.kaiser_window(4)
sparse_csr_tensor: xgrad.sparse_csr_tensor([0, 1, 2], [1, 0], [2.0, 3.0], (2, 2)).to_dense()
sparse_csc_tensor: xgrad.sparse_csc_tensor([0, 1, 2], [1, 0], [2.0, 3.0], (2, 2)).to_dense()
sparse_bsr_tensor: xgrad.sparse_bsr_tensor([0, 1], [0], [[[1.0, 2.0]]], (1, 2)).to_dense()
sparse_bsc_tensor: xgrad.sparse_bsc_tensor([0, 1], [0], [[[1.0, 2.0]]], (1, 2)).to_dense()
linalg.cholesky_ex: xgrad.linalg.cholesky_ex(a).L
linalg.cholesky: xgrad.linalg.cholesky(a)
linalg.multi_dot: xgrad.linalg.multi_dot([a, a, b])
linalg.eigvalsh: xgrad.linalg.eigvalsh(a)
linalg.eigvals: xgrad.linalg.eigvals(a).shape
linalg.ldl_factor_ex: xgrad.linalg.ldl_factor_ex(a).LD
linalg.ldl_factor: xgrad.linalg.ldl_factor(a).LD
linalg.svdvals: xgrad.linalg.svdvals(a)
linalg.lstsq: xgrad.linalg.lstsq(a, b).solution
linalg.lu_factor_ex: xgrad.linalg.lu_factor_ex(a).LU
linalg.norm: xgrad.linalg.norm(x)
linalg.inv_ex: xgrad.linalg.inv_ex(a).inverse
linalg.solve_ex: xgrad.linalg.solve_ex(a, b).result
linalg.tensorinv: xgrad.linalg.tensorinv(a, ind=1)
linalg.tensorsolve: xgrad.linalg.tensorsolve(a, xgrad.tensor([1.0, 2.0]))
linalg.cond: xgrad.linalg.cond(a)
linalg.diagonal: xgrad.linalg.diagonal(a)
linalg.eig: xgrad.linalg.eig(a).eigenvalues.shape
linalg.qr: xgrad.linalg.qr(a).R.shape
linalg.svd: xgrad.linalg.svd(a).S
linalg.eigh: xgrad.linalg.eigh(a).eigenvalues
geqrf: xgrad.geqrf(a).tau.shape
nn.functional.triplet_margin_with_distance_loss: xgrad.nn.functional.triplet_margin_with_distance_loss(x, y, -y)
nn.functional.fractional_max_pool2d: xgrad.nn.functional.fractional_max_pool2d(image, 2, 2).shape
nn.functional.fractional_max_pool2d_with_indices: \
xgrad.nn.functional.fractional_max_pool2d_with_indices(image, 2, 2)[0].shape
nn.functional.fractional_max_pool3d: xgrad.nn.functional.fractional_max_pool3d(volume, 1, 2).shape
nn.functional.fractional_max_pool3d_with_indices: \
xgrad.nn.functional.fractional_max_pool3d_with_indices(volume, 1, 2)[0].shape
nn.functional.adaptive_max_pool1d: xgrad.nn.functional.adaptive_max_pool1d(line, 2)
nn.functional.lp_pool1d: xgrad.nn.functional.lp_pool1d(line, 2, 2)
nn.functional.adaptive_max_pool2d: xgrad.nn.functional.adaptive_max_pool2d(image, 2)
nn.functional.lp_pool2d: xgrad.nn.functional.lp_pool2d(image, 2, 2)
nn.functional.adaptive_max_pool3d: xgrad.nn.functional.adaptive_max_pool3d(volume, 1)
nn.functional.lp_pool3d: xgrad.nn.functional.lp_pool3d(volume, 2, 2)
nn.functional.interpolate: xgrad.nn.functional.interpolate(line, scale_factor=0.5)
nn.functional.upsample: xgrad.nn.functional.upsample(line, scale_factor=0.5)
nn.functional.upsample_nearest: xgrad.nn.functional.upsample_nearest(image, scale_factor=0.5)
nn.functional.upsample_bilinear: \
xgrad.nn.functional.upsample_bilinear(image, size=(2, 2))
nn.functional.gumbel_softmax: xgrad.nn.functional.gumbel_softmax(x, hard=True).sum(1)
nn.functional.dropout1d: xgrad.nn.functional.dropout1d(line, 0.5).shape
nn.functional.dropout2d: xgrad.nn.functional.dropout2d(image, 0.5).shape
nn.functional.dropout3d: xgrad.nn.functional.dropout3d(volume, 0.5).shape
nn.functional.pad: xgrad.nn.functional.pad(v, (1, 2))
fft.rfftfreq: xgrad.fft.rfftfreq(4)
signal.windows.bartlett: xgrad.signal.windows.bartlett(4)
signal.windows.blackman: xgrad.signal.windows.blackman(4)
signal.windows.cosine: xgrad.signal.windows.cosine(4)
signal.windows.hamming: xgrad.signal.windows.hamming(4)
signal.windows.hann: xgrad.signal.windows.hann(4)
signal.windows.nuttall: xgrad.signal.windows.nuttall(4)
signal.windows.exponential: xgrad.signal.windows.exponential(4)
signal.windows.gaussian: xgrad.signal.windows.gaussian(4)
signal.windows.kaiser: xgrad.signal.windows.kaiser(4)
signal.windows.general_hamming: xgrad.signal.windows.general_hamming(4)
sub: xgrad.sub(v, 1, alpha=2)
tensordot: xgrad.tensordot(a, b, 1)
var: xgrad.var(x, dim=1)
std: xgrad.std(x, dim=1)
var_mean: xgrad.var_mean(v)
std_mean: xgrad.std_mean(v)
ctc_loss: xgrad.nn.functional.ctc_loss(xgrad.zeros(4, 1, 3).log_softmax(2), xgrad.tensor([[1, 2]]), [4], [2])
embedding: xgrad.nn.functional.embedding(xgrad.tensor([0, 1]), a)
embedding_bag: xgrad.nn.functional.embedding_bag(xgrad.tensor([[0, 1]]), a)
nn.functional.embedding_bag: xgrad.nn.functional.embedding_bag(xgrad.tensor([[0, 1]]), a)
max_pool1d: xgrad.nn.functional.max_pool1d(line, 2)
max_pool1d_with_indices: xgrad.nn.functional.max_pool1d_with_indices(line, 2)[1]
max_pool2d: xgrad.nn.functional.max_pool2d(image, 2)
max_pool2d_with_indices: xgrad.nn.functional.max_pool2d_with_indices(image, 2)[1]
max_pool3d: xgrad.nn.functional.max_pool3d(volume, 2)
max_pool3d_with_indices: xgrad.nn.functional.max_pool3d_with_indices(volume, 2)[1]
polygamma: xgrad.polygamma(1, v)
cumulative_trapezoid: xgrad.cumulative_trapezoid(v)
histogramdd: xgrad.histogramdd(y, bins=[2, 2, 2]).hist.shape
diff: xgrad.diff(v)
nanquantile: xgrad.nanquantile(v, 0.5)
nn.functional.relu: xgrad.nn.functional.relu(x)
nn.functional.softmax: xgrad.nn.functional.softmax(a, dim=1)
nn.functional.log_softmax: xgrad.nn.functional.log_softmax(a, dim=1)
nn.functional.softmin: xgrad.nn.functional.softmin(a, dim=1)
nn.functional.scaled_dot_product_attention: xgrad.nn.functional.scaled_dot_product_attention(a, a, a)
nn.functional.nll_loss: xgrad.nn.functional.nll_loss(a.log_softmax(1), xgrad.tensor([0, 1]))
nn.functional.max_unpool1d: \
xgrad.nn.functional.max_unpool1d(*xgrad.nn.functional.max_pool1d(line, 2, return_indices=True), 2)
nn.functional.max_unpool2d: \
xgrad.nn.functional.max_unpool2d(*xgrad.nn.functional.max_pool2d(image, 2, return_indices=True), 2)
nn.functional.max_unpool3d: \
xgrad.nn.functional.max_unpool3d(*xgrad.nn.functional.max_pool3d(volume, 2, return_indices=True), 2)
special.softmax: xgrad.special.softmax(a, dim=1)
special.log_softmax: xgrad.special.log_softmax(a, dim=1)
Tensor.is_set_to: v.is_set_to(v)
Tensor.set_: v.set_(v)
Tensor.storage: v.storage().size()
Tensor.add_: v.add_(1)
Tensor.sub_: v.sub_(1)
Tensor.subtract_: v.subtract_(1)
Tensor.div_: v.div_(2)
Tensor.divide_: v.divide_(2)
Tensor.true_divide_: v.true_divide_(2)
Tensor.new_tensor: v.new_tensor([1, 2])
Tensor.new_zeros: v.new_zeros(2)
Tensor.new_ones: v.new_ones(2)
Tensor.new_empty: v.new_empty(2).shape
Tensor.new_full: v.new_full((2,), 0.5)
Tensor.new_empty_strided: v.new_empty_strided((2, 3), (1, 2)).stride()
Tensor.cpu: v.cpu()
Tensor.cuda: v.cuda() if xgrad.cuda.is_available() else v.device.type
Tensor.type_as: k.type_as(v)
Tensor.float: k.float()
Tensor.double: import jax; jax.config.update("jax_enable_x64", True); v.double()
Tensor.half: v.half()
Tensor.bfloat16: v.bfloat16()
Tensor.byte: v.byte()
Tensor.char: v.char()
Tensor.short: v.short()
Tensor.int: v.int().sum().item()
Tensor.long: import jax; jax.config.update("jax_enable_x64", True); v.long()
Tensor.bool: k.bool()
Tensor.cfloat: v.cfloat()
Tensor.cdouble: import jax; jax.config.update("jax_enable_x64", True); v.cdouble()
Tensor.fill_diagonal_: a.fill_diagonal_(0)
Tensor.pow_: v.pow_(2)
Tensor.uniform_: v.uniform_().shape
Tensor.normal_: v.normal_().shape
Tensor.log_normal_: v.log_normal_().shape
Tensor.exponential_: v.exponential_().shape
Tensor.cauchy_: v.cauchy_().shape
Tensor.geometric_: v.geometric_(0.5).shape
Tensor.bernoulli_: v.bernoulli_().shape
Tensor.random_: v.random_(10).shape
Tensor.view: x.view(3, 2)
Tensor.view_as: x.view_as(xgrad.ones(3, 2))
Tensor.reshape_as: x.reshape_as(xgrad.ones(3, 2))
Tensor.unfold: v.unfold(0, 2, 1)
Tensor.contiguous: x.t().contiguous().stride()
Tensor.t_: x.t_()
Tensor.transpose_: x.transpose_(0, 1)
Tensor.swapdims_: x.swapdims_(0, 1)
Tensor.swapaxes_: x.swapaxes_(0, 1)
Tensor.squeeze_: b.squeeze_()
Tensor.unsqueeze_: v.unsqueeze_(1)
Tensor.as_strided_: x.as_strided_((2, 2), (1, 2))
Tensor.expand: v.expand(2, 3)
Tensor.expand_as: v.expand_as(x)
Tensor.repeat: v.repeat(2)
Tensor.sum_to_size: x.sum_to_size(2, 1)
Tensor.to_sparse_csc: a.to_sparse_csc().to_dense()
Tensor.to_sparse_bsr: a.to_sparse_bsr((1, 1)).to_dense()
Tensor.to_sparse_bsc: a.to_sparse_bsc((1, 1)).to_dense()
Tensor.crow_indices: a.to_sparse_csr().crow_indices()
Tensor.col_indices: a.to_sparse_csr().col_indices()
Tensor.ccol_indices: a.to_sparse_csc().ccol_indices()
Tensor.row_indices: a.to_sparse_csc().row_indices()
Tensor.to_dense: s.to_dense()
Tensor.sparse_mask: a.sparse_mask(s.coalesce()).to_dense()
Tensor.coalesce: s.coalesce().values()
Tensor.is_coalesced: s.coalesce().is_coalesced()
Tensor.indices: s.coalesce().indices()
Tensor.values: s.coalesce().values()
Tensor.sparse_dim: s.sparse_dim()
Tensor.dense_dim: s.dense_dim()
frexp: xgrad.frexp(v).mantissa
Tensor.where: v.where(v > 1, 0.0)
Tensor.split: v.split(2)
Tensor.lu_solve: b.lu_solve(*xgrad.linalg.lu_factor(a))
"""


def table() -> dict[str, str]:
    """Return the examples by the functions' names."""
    return dict(line.split(": ", 1) for line in EXAMPLES.strip().replace("\\\n", "").splitlines())
