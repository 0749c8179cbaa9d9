"""What a function may depend on: a setup, what is read, and what changes it, as source.

    a kind
        its setup
      reads an expression of x, a vector
      a change
      another; one of them puts back what the setup made

`_N` is a number that tells several apart.  All run in the globals of one module, which is the user's or installed.
"""

HEADER = """
import argparse, collections, contextvars, copy, dataclasses, decimal, enum, fractions, functools, itertools, json, math
import operator, os, sys, types, weakref
import numpy as np
import xgrad
"""
ALWAYS = (  # between cases
    "xgrad.set_default_dtype(xgrad.float32)", "xgrad.set_grad_enabled(True)", "xgrad.config.narrow = 'warn'",
    "xgrad.distributions.Distribution.set_default_validate_args(True)",
    "import builtins, operator; builtins.abs = operator.abs",
    "from xgrad.engine.hooks import EVERYWHERE; EVERYWHERE.clear()", "from xgrad.nn.module_hooks import ANY, GLOBAL",
    "[hooks.clear() for hooks in (ANY, *GLOBAL.values())]",
    "[hooks.clear() for hooks in (xgrad.optim.optimizer._global_pre_hooks, xgrad.optim.optimizer._global_post_hooks)]",
)  # fmt: skip

_TEXT = r"""
# names
a global
    g_N = 2.0
  reads x * g_N
  g_N = 2.0
  g_N = 3.0
  g_N = 2
  g_N = -2.0
  g_N = '2'
  g_N = [2.0]
the sign of zero
    g_N = 0.0
  reads x * math.copysign(1, g_N)
  g_N = 0.0
  g_N = -0.0
a NaN
    g_N = float('nan')
  reads x * (1.0 if g_N != g_N else g_N)
  g_N = float('nan')
  g_N = 5.0
a type of number
    g_N = 1
  reads x * (2 if g_N is True else 3 if isinstance(g_N, int) else 5)
  g_N = 1
  g_N = 1.0
  g_N = True
a complex zero
    g_N = 0j
  reads x * math.copysign(1, g_N.real)
  g_N = 0j
  g_N = complex(-0.0, 0)
globals()
    g_N = 2.0
  reads x * globals()['g_N']
  g_N = 2.0
  g_N = 3.0
a computed name
    g_N = types.SimpleNamespace(ab=2.0)
  reads x * getattr(g_N, 'a' + 'b')
  g_N.ab = 2.0
  g_N.ab = 3.0
a late global
    def r_N():
        try: return late_N
        except NameError: return 2.0
  reads x * r_N()
  late_N = 3.0
  globals().pop('late_N', None)
a late attribute
    class K_N:
        s = 2.0
        def __init__(self): self.a = 3.0
        def m(self, x): return x * self.a * self.s
    o_N = K_N()
  reads x * getattr(K_N, 'late', 2.0)
  K_N.late = 3.0
  K_N.late = 5.0
hasattr
    class K_N:
        s = 2.0
        def __init__(self): self.a = 3.0
        def m(self, x): return x * self.a * self.s
    o_N = K_N()
  reads x * (3.0 if hasattr(o_N, 'late') else 2.0)
  o_N.late = 1
  o_N.__dict__.pop('late', None)
a shadowed builtin
    l_N = [1, 2]
  reads x * len(l_N)
  len = lambda l: 7
  globals().pop('len', None)

# functions
a closure
    def make_N():
        c = 2.0
        def inner(x): return x * c
        def put(v):
            nonlocal c
            c = v
        return inner, put
    inner_N, put_N = make_N()
  reads inner_N(x)
  put_N(2.0)
  put_N(3.0)
  put_N(xgrad.tensor(3.0))
a default
    def d_N(x, s=2.0): return x * s
  reads d_N(x)
  d_N.__defaults__ = (2.0,)
  d_N.__defaults__ = (3.0,)
a keyword default
    def d_N(x, *, s=2.0): return x * s
  reads d_N(x)
  d_N.__kwdefaults__ = {'s': 2.0}
  d_N.__kwdefaults__['s'] = 3.0
__code__
    def d_N(x): return x * 2
    def e_N(x): return x * 5
    c_N = d_N.__code__
  reads d_N(x)
  d_N.__code__ = e_N.__code__
  d_N.__code__ = c_N
a function
    def d_N(x): return x * 2
    e_N = d_N
  reads d_N(x)
  d_N = lambda x: x * 3
  d_N = e_N
an attribute of a function
    def d_N(x): return x * d_N.s
    d_N.s = 2.0
  reads d_N(x)
  d_N.s = 2.0
  d_N.s = 3.0
partial
    g_N = [2.0]
    p_N = functools.partial(lambda l, x: x * l[0], g_N)
  reads p_N(x)
  g_N[0] = 2.0
  g_N[0] = 3.0
a decorated function
    def twice_N(f):
        @functools.wraps(f)
        def w(x): return f(x) * scale_N
        return w
    scale_N = 2.0
    @twice_N
    def d_N(x): return x * 3
  reads d_N(x)
  scale_N = 2.0
  scale_N = 3.0
reduce
    g_N = 2.0
  reads functools.reduce(lambda a, b: a * b * g_N, [x, 1.0, 2.0])
  g_N = 2.0
  g_N = 3.0
a sort key
    g_N = 1
    v_N = [2.0, 3.0, 5.0]
  reads x * sorted(v_N, key=lambda v: g_N * v)[0]
  g_N = 1
  g_N = -1
a generator
    g_N = [2.0, 3.0]
    def gen_N():
        for v in g_N: yield v * k_N
    k_N = 1.0
  reads x * sum(gen_N())
  k_N = 2.0
  k_N = 1.0
  g_N[1] = 7.0
  g_N[1] = 3.0
  g_N.append(1.0)
  del g_N[2:]

# containers
a list
    g_N = [2.0, 3.0]
  reads x * (g_N[0] + 10 * g_N[-1] + len(g_N))
  g_N[0] = 5.0
  g_N[0] = 2.0
  g_N.reverse()
  g_N.append(1.0)
  del g_N[2:]
  g_N = [2.0, 3.0]
a tuple
    g_N = (2.0, [3.0])
  reads x * g_N[1][0]
  g_N[1][0] = 5.0
  g_N = (2.0, [3.0])
  g_N = (2.0, (3.0,))
a dictionary
    g_N = {'a': 2.0, 'b': 3.0}
  reads x * (g_N['a'] + 10 * g_N.get('c', 1.0))
  g_N['a'] = 5.0
  g_N['a'] = 2.0
  g_N['c'] = 2.0
  g_N.pop('c', None)
order of a dictionary
    g_N = {'a': 2.0, 'b': 3.0}
  reads x * sum(i * v for i, v in enumerate(g_N.values()))
  g_N['a'] = g_N.pop('a')
  g_N['b'] = g_N.pop('b')
order of keys
    g_N = {'a': 2.0, 'b': 2.0}
  reads x * (3 if next(iter(g_N)) == 'a' else 5)
  g_N['a'] = g_N.pop('a')
  g_N['b'] = g_N.pop('b')
an OrderedDict
    g_N = collections.OrderedDict(a=2.0, b=3.0)
  reads x * sum(i * v for i, v in enumerate(g_N.values()))
  g_N.move_to_end('a')
  g_N.move_to_end('b')
a defaultdict
    g_N = collections.defaultdict(float, a=2.0)
  reads x * g_N.get('a')
  g_N['a'] = 2.0
  g_N['a'] = 3.0
a Counter
    g_N = collections.Counter('aab')
  reads x * g_N.total()
  g_N.update('a')
  g_N.clear()
a set
    g_N = {2, 3}
  reads x * sum(g_N)
  g_N.add(5)
  g_N.discard(5)
  g_N = {2.0, 3}
a deque
    g_N = collections.deque([2.0, 3.0])
  reads x * g_N[0]
  g_N.rotate()
  g_N[0] = 7.0
attributes of a dict
    class D_N(dict): pass
    g_N = D_N(a=1.0)
    g_N.s = 2.0
  reads x * g_N.s
  g_N.s = 2.0
  g_N.s = 3.0
attributes of a list
    class D_N(list): pass
    g_N = D_N([1.0])
    g_N.s = 2.0
  reads x * g_N.s
  g_N.s = 2.0
  g_N.s = 3.0
attributes of a namedtuple
    class D_N(collections.namedtuple('D', 'a')): pass
    g_N = D_N(1.0)
    g_N.s = 2.0
  reads x * g_N.s
  g_N.s = 2.0
  g_N.s = 3.0
a mapping proxy
    h_N = {'a': 2.0}
    g_N = types.MappingProxyType(h_N)
  reads x * g_N['a']
  h_N['a'] = 2.0
  h_N['a'] = 3.0
a ChainMap
    h_N = {'a': 2.0}
    g_N = collections.ChainMap({}, h_N)
  reads x * g_N['a']
  h_N['a'] = 3.0
  h_N['a'] = 2.0
  g_N['a'] = 5.0
  g_N.maps[0].clear()
a UserDict
    g_N = collections.UserDict(a=2.0)
  reads x * g_N['a']
  g_N['a'] = 2.0
  g_N['a'] = 3.0
a UserList
    g_N = collections.UserList([2.0])
  reads x * g_N[0]
  g_N[0] = 2.0
  g_N[0] = 3.0
bytes
    g_N = bytearray([2])
  reads x * g_N[0]
  g_N[0] = 2
  g_N[0] = 3
a nested container
    g_N = {'a': [{'b': (1.0, [2.0])}]}
  reads x * g_N['a'][0]['b'][1][0]
  g_N['a'][0]['b'][1][0] = 2.0
  g_N['a'][0]['b'][1][0] = 3.0

# instances
an instance
    class K_N:
        s = 2.0
        def __init__(self): self.a = 3.0
        def m(self, x): return x * self.a * self.s
    o_N = K_N()
  reads o_N.m(x)
  o_N.a = 3.0
  o_N.a = 5.0
  K_N.s = 2.0
  K_N.s = 7.0
an instance's own method
    class K_N:
        s = 2.0
        def __init__(self): self.a = 3.0
        def m(self, x): return x * self.a * self.s
    o_N = K_N()
  reads o_N.m(x)
  o_N.m = lambda x: x * 11
  o_N.__dict__.pop('m', None)
a SimpleNamespace
    o_N = types.SimpleNamespace(a=2.0)
  reads x * o_N.a
  o_N.a = 2.0
  o_N.a = 3.0
  o_N.a = 5.0
an argparse.Namespace
    o_N = argparse.Namespace(a=2.0)
  reads x * o_N.a
  o_N.a = 2.0
  o_N.a = 3.0
  o_N.a = 5.0
a dataclass
    @dataclasses.dataclass
    class K_N:
        a: float = 2.0
    o_N = K_N()
  reads x * o_N.a
  o_N.a = 2.0
  o_N.a = 3.0
  o_N.a = 5.0
slots
    class K_N:
        __slots__ = ('a',)
    o_N = K_N()
    o_N.a = 2.0
  reads x * o_N.a
  o_N.a = 2.0
  o_N.a = 3.0
  o_N.a = 5.0
a ContextVar
    v_N = contextvars.ContextVar('v_N', default=2.0)
  reads x * v_N.get()
  v_N.set(3.0)
  v_N.set(2.0)
vars(object)
    class K_N:
        s = 2.0
        def __init__(self): self.a = 3.0
        def m(self, x): return x * self.a * self.s
    o_N = K_N()
  reads x * vars(o_N)['a']
  o_N.a = 3.0
  o_N.a = 5.0
the items of vars
    class K_N:
        s = 2.0
        def __init__(self): self.a = 3.0
        def m(self, x): return x * self.a * self.s
    o_N = K_N()
  reads x * sum(vars(o_N).values())
  o_N.b = 2.0
  o_N.__dict__.pop('b', None)
  o_N.a = 7.0
attrgetter
    class K_N:
        s = 2.0
        def __init__(self): self.a = 3.0
        def m(self, x): return x * self.a * self.s
    o_N = K_N()
  reads x * operator.attrgetter('a')(o_N)
  o_N.a = 3.0
  o_N.a = 5.0
__call__
    class K_N:
        def __call__(self, x): return x * self.a
    o_N = K_N()
    o_N.a = 2.0
  reads o_N(x)
  o_N.a = 2.0
  o_N.a = 3.0
__getitem__
    class K_N:
        def __getitem__(self, i): return self.a * i
    o_N = K_N()
    o_N.a = 2.0
  reads x * o_N[3]
  o_N.a = 2.0
  o_N.a = 3.0
__len__
    class K_N:
        def __len__(self): return self.a
    o_N = K_N()
    o_N.a = 2
  reads x * len(o_N)
  o_N.a = 2
  o_N.a = 3
__bool__
    class K_N:
        def __bool__(self): return self.a
    o_N = K_N()
    o_N.a = True
  reads x * (2 if o_N else 3)
  o_N.a = True
  o_N.a = False
__float__
    class K_N:
        def __float__(self): return self.a
    o_N = K_N()
    o_N.a = 2.0
  reads x * float(o_N)
  o_N.a = 2.0
  o_N.a = 3.0
__eq__
    class K_N:
        def __eq__(self, o): return self.a
        __hash__ = None
    o_N = K_N()
    o_N.a = True
  reads x * (2 if o_N == 1 else 3)
  o_N.a = True
  o_N.a = False
__format__
    class K_N:
        def __format__(self, s): return str(self.a)
    o_N = K_N()
    o_N.a = 2.0
  reads x * float(f'{o_N}')
  o_N.a = 2.0
  o_N.a = 3.0
a context manager
    class K_N:
        def __enter__(self): return self.a
        def __exit__(self, *e): pass
    o_N = K_N()
    o_N.a = 2.0
    def r_N():
        with o_N as a: return a
  reads x * r_N()
  o_N.a = 2.0
  o_N.a = 3.0
__getattr__
    class K_N:
        def __getattr__(self, n): return t_N[n]
    t_N = {'a': 2.0}
    o_N = K_N()
  reads x * o_N.a
  t_N['a'] = 3.0
  t_N['a'] = 2.0
  o_N.a = 5.0
  o_N.__dict__.clear()
__getattribute__
    class K_N:
        def __getattribute__(self, n): return t_N[n] if n in t_N else object.__getattribute__(self, n)
    t_N = {'a': 2.0}
    o_N = K_N()
  reads x * o_N.a
  t_N['a'] = 2.0
  t_N['a'] = 3.0
a property
    class K_N:
        @property
        def a(self): return self.b * 2
    o_N = K_N()
    o_N.b = 1.0
  reads x * o_N.a
  o_N.b = 1.0
  o_N.b = 3.0
  K_N.a = property(lambda self: 7.0)
  K_N.a = property(lambda self: self.b * 2)
a cached property
    class K_N:
        @functools.cached_property
        def a(self): return 2.0
    o_N = K_N()
    o_N.a
  reads x * o_N.a
  o_N.a = 2.0
  o_N.a = 3.0
a descriptor
    class P_N:
        def __get__(self, o, k): return self.v
    class K_N:
        a = P_N()
    o_N = K_N()
    K_N.__dict__['a'].v = 2.0
  reads x * o_N.a
  K_N.__dict__['a'].v = 2.0
  K_N.__dict__['a'].v = 3.0
__class__
    class K_N:
        s = 2.0
        def __init__(self): self.a = 3.0
        def m(self, x): return x * self.a * self.s
    o_N = K_N()
    class L_N(K_N):
        s = 5.0
  reads o_N.m(x)
  o_N.__class__ = L_N
  o_N.__class__ = K_N
a weak reference
    class K_N:
        s = 2.0
        def __init__(self): self.a = 3.0
        def m(self, x): return x * self.a * self.s
    o_N = K_N()
    r_N = weakref.ref(o_N)
  reads x * r_N().a
  o_N.a = 3.0
  o_N.a = 5.0

# classes
a class attribute
    class K_N:
        s = 2.0
        def __init__(self): self.a = 3.0
        def m(self, x): return x * self.a * self.s
    o_N = K_N()
  reads x * K_N.s
  K_N.s = 2.0
  K_N.s = 3.0
an inherited attribute
    class B_N:
        s = 2.0
    class K_N(B_N):
        pass
    o_N = K_N()
  reads x * o_N.s
  B_N.s = 2.0
  B_N.s = 3.0
  K_N.s = 7.0
  's' in vars(K_N) and delattr(K_N, 's')
super()
    class B_N:
        s = 2.0
        def m(self, x): return x * self.s
    class K_N(B_N):
        def m(self, x): return super().m(x)
    o_N = K_N()
  reads o_N.m(x)
  B_N.s = 2.0
  B_N.s = 3.0
  B_N.m = lambda self, x: x * 11
  B_N.m = lambda self, x: x * self.s
a replaced method
    class K_N:
        s = 2.0
        def __init__(self): self.a = 3.0
        def m(self, x): return x * self.a * self.s
    o_N = K_N()
    m_N = K_N.m
  reads o_N.m(x)
  K_N.m = lambda self, x: x * 11
  K_N.m = m_N
a static method
    class K_N:
        @staticmethod
        def m(x): return x * 2
    o_N = K_N()
  reads o_N.m(x)
  K_N.m = staticmethod(lambda x: x * 2)
  K_N.m = staticmethod(lambda x: x * 3)
a class method
    class K_N:
        s = 2.0
        @classmethod
        def m(cls, x): return x * cls.s
    o_N = K_N()
  reads o_N.m(x)
  K_N.s = 2.0
  K_N.s = 3.0
  K_N.m = classmethod(lambda cls, x: x * 11)
  K_N.m = classmethod(lambda cls, x: x * cls.s)
a metaclass
    class M_N(type):
        s = 2.0
    class K_N(metaclass=M_N): pass
  reads x * K_N.s
  M_N.s = 2.0
  M_N.s = 3.0
  K_N.s = 7.0
  's' in vars(K_N) and delattr(K_N, 's')
a metaclass's property
    class M_N(type):
        @property
        def s(cls): return M_N.t
    M_N.t = 2.0
    class K_N(metaclass=M_N): pass
  reads x * K_N.s
  M_N.t = 2.0
  M_N.t = 3.0
bases
    class B_N:
        s = 2.0
    class K_N(B_N):
        pass
    o_N = K_N()
    class C_N:
        s = 5.0
    class D_N(C_N): pass
    class E_N(D_N): pass
    e_N = E_N()
    class F_N:
        s = 9.0
  reads x * e_N.s
  D_N.__bases__ = (F_N,)
  D_N.__bases__ = (C_N,)
an enum
    class E_N(enum.Enum):
        A = 2.0
        B = 3.0
    g_N = E_N.A
  reads x * g_N.value
  g_N = E_N.A
  g_N = E_N.B
a registry
    R_N = {}
    def reg_N(f): R_N[f.__name__] = f
    @reg_N
    def a_N(x): return x * 2
  reads R_N['a_N'](x)
  R_N['a_N'] = lambda x: x * 2
  R_N['a_N'] = lambda x: x * 3
singledispatch
    @functools.singledispatch
    def d_N(v, x): return x * 2
  reads d_N(1, x)
  d_N.register(int, lambda v, x: x * 3)
  d_N.register(int, lambda v, x: x * 5)

# numbers and texts of the standard library
a Fraction
    g_N = fractions.Fraction(1, 2)
  reads x * float(g_N)
  g_N = fractions.Fraction(1, 2)
  g_N = fractions.Fraction(1, 3)
a Decimal
    g_N = decimal.Decimal('0.5')
  reads x * float(g_N)
  g_N = decimal.Decimal('0.5')
  g_N = decimal.Decimal('-0.0')
JSON
    g_N = '{"a": 2.0}'
  reads x * json.loads(g_N)['a']
  g_N = '{"a": 2.0}'
  g_N = '{"a": 3.0}'
the environment
    os.environ['XGRAD_T_N'] = '2'
  reads x * float(os.environ['XGRAD_T_N'])
  os.environ['XGRAD_T_N'] = '2'
  os.environ['XGRAD_T_N'] = '3'
another module
    sys.modules['mod_N'] = types.ModuleType('mod_N')
    sys.modules['mod_N'].s = 2.0
    import mod_N
  reads x * mod_N.s
  mod_N.s = 2.0
  mod_N.s = 3.0
an import inside
    sys.modules['mod_N'] = types.ModuleType('mod_N')
    sys.modules['mod_N'].s = 2.0
    def r_N():
        import mod_N
        return mod_N.s
  reads x * r_N()
  sys.modules['mod_N'].s = 2.0
  sys.modules['mod_N'].s = 3.0

# NumPy
a NumPy array
    g_N = np.array([2.0, 3.0])
  reads x * float(g_N[0])
  g_N[0] = 5.0
  g_N[0] = 2.0
  g_N = g_N.copy()
a large NumPy array
    g_N = np.ones(5000)
  reads x * float(g_N[4999])
  g_N[4999] = 1.0
  g_N[4999] = 3.0
a NumPy array of objects
    g_N = np.array([2.0, 'a'], dtype=object)
  reads x * g_N[0]
  g_N[0] = 2.0
  g_N[0] = 3.0
a NumPy zero
    g_N = np.zeros(2)
  reads x * math.copysign(1, g_N[0])
  g_N[0] = 0.0
  g_N[0] = -0.0
a NumPy NaN
    g_N = np.array([float('nan'), 1.0])
  reads x * float(np.nan_to_num(g_N[0], nan=9.0))
  g_N[0] = float('nan')
  g_N[0] = 3.0
a NumPy view
    h_N = np.arange(4.0)
    g_N = h_N[::2]
  reads x * float(g_N[1])
  h_N[2] = 2.0
  h_N[2] = 3.0
a NumPy constant
    g_N = np.array([2.0, 3.0])
  reads x * xgrad.tensor(g_N)
  g_N[1] = 3.0
  g_N[1] = 5.0

# tensors
a tensor
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
  reads x * w_N.detach()
  w_N.data.add_(1)
  w_N = w_N.detach().clone().requires_grad_()
  w_N = xgrad.ones(2, dtype=xgrad.float64)
a tensor's dtype
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
  reads x * w_N.detach()
  w_N = w_N.detach().float()
  w_N = w_N.detach().double()
requires_grad
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
  reads x * w_N
  w_N.requires_grad_(False)
  w_N.requires_grad_(True)
a tensor's attribute
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    w_N.lr = 2.0
  reads x * w_N.lr
  w_N.lr = 2.0
  w_N.lr = 3.0
a tensor in a list
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    g_N = [w_N.detach(), 2.0]
  reads x * g_N[0]
  g_N[0] = 3.0
  g_N[0] = w_N.detach()
  g_N[0] = w_N.detach() * 2
a tensor's .grad
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
  reads x * (2.0 if w_N.grad is None else w_N.grad)
  w_N.grad = None
  w_N.grad = xgrad.ones(2, dtype=xgrad.float64)
tensors that are one
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    a_N = b_N = w_N.detach()
  reads x * (2.0 if a_N is b_N else 3.0) + a_N
  b_N = a_N.clone()
  b_N = a_N
a hook
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    k_N = 1.0
    h_N = w_N.register_hook(lambda g: g * k_N)
  reads xgrad.autograd.grad((w_N * x * x).sum(), w_N)[0]
  k_N = 1.0
  k_N = 3.0
hooks come and go
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    h_N = w_N.register_hook(lambda g: g * 2)
  reads xgrad.autograd.grad((w_N * x * x).sum(), w_N)[0]
  h_N.remove()
  h_N = w_N.register_hook(lambda g: g * 3)
what a hook closes over
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    def make_N():
        c = [2.0]
        w_N.register_hook(lambda g: g * c[0])
        return c
    c_N = make_N()
  reads xgrad.autograd.grad((w_N * x * x).sum(), w_N)[0]
  c_N[0] = 2.0
  c_N[0] = 3.0
an object as a hook
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    class H_N:
        def __call__(self, g): return g * self.a
    o_N = H_N()
    o_N.a = 2.0
    w_N.register_hook(o_N)
  reads xgrad.autograd.grad((w_N * x * x).sum(), w_N)[0]
  o_N.a = 2.0
  o_N.a = 3.0
saved-tensor hooks
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    k_N = 1.0
    def r_N(x):
        with xgrad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * k_N):
            return xgrad.autograd.grad((w_N * x * x).sum(), w_N)[0]
  reads r_N(x)
  k_N = 1.0
  k_N = 3.0
a custom Function
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    k_N = 2.0
    class F_N(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, a): return a * 2
        @staticmethod
        def backward(ctx, g): return g * k_N
  reads xgrad.autograd.grad((F_N.apply(w_N) * x).sum(), w_N)[0]
  k_N = 2.0
  k_N = 3.0
a module
    class Net_N(xgrad.nn.Module):
        def __init__(self):
            super().__init__()
            self.s = 2.0
            self.register_buffer('b', xgrad.ones(2, dtype=xgrad.float64))
        def forward(self, x):
            return x * self.s * self.b * (2 if self.training else 3)
    n_N = Net_N()
  reads n_N(x)
  n_N.train()
  n_N.eval()
  n_N.s = 3.0
  n_N.s = 2.0
  n_N.b = n_N.b * 2
a module's hooks
    k_N = 2.0
    class Net_N(xgrad.nn.Module):
        def forward(self, x): return x * 2
    n_N = Net_N()
  reads n_N.forward(x) * k_N
  k_N = 2.0
  k_N = 3.0

# modes and settings
the default dtype
  reads x * xgrad.tensor([0.1, 0.7]) * xgrad.tensor(2.0)
  xgrad.set_default_dtype(xgrad.float64)
  xgrad.set_default_dtype(xgrad.float32)
grad mode
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
  reads x * w_N
  xgrad.set_grad_enabled(False)
  xgrad.set_grad_enabled(True)

# xgrad's own objects
a schedule's last rate
    w_N = xgrad.ones(1, requires_grad=True)
    o_N = xgrad.optim.SGD([w_N], lr=0.5)
    s_N = xgrad.optim.lr_scheduler.ExponentialLR(o_N, gamma=0.5)
  reads x * s_N.get_last_lr()[0]
  s_N.step()
  s_N._last_lr = [0.5]
a schedule's epoch
    w_N = xgrad.ones(1, requires_grad=True)
    o_N = xgrad.optim.SGD([w_N], lr=0.5)
    s_N = xgrad.optim.lr_scheduler.LambdaLR(o_N, lambda epoch: 1 / (1 + epoch))
    def r_N(x): return x * (s_N.last_epoch + s_N.get_lr()[0])
  reads r_N(x)
  s_N.step()
  s_N.last_epoch = 0
a schedule's options
    w_N = xgrad.ones(1, requires_grad=True)
    o_N = xgrad.optim.SGD([w_N], lr=0.5)
    s_N = xgrad.optim.lr_scheduler.StepLR(o_N, step_size=1, gamma=0.5)
  reads x * s_N._get_closed_form_lr()[0]
  s_N.gamma = 0.5
  s_N.gamma = 0.25
  s_N.base_lrs[0] = 0.5
  s_N.base_lrs[0] = 0.25
  s_N.last_epoch = 3
  s_N.load_state_dict({'last_epoch': 2})
the function of a schedule
    w_N = xgrad.ones(1, requires_grad=True)
    o_N = xgrad.optim.SGD([w_N], lr=0.5)
    k_N = [2.0]
    s_N = xgrad.optim.lr_scheduler.LambdaLR(o_N, lambda epoch: k_N[0])
  reads x * s_N.get_lr()[0]
  k_N[0] = 2.0
  k_N[0] = 3.0
  s_N.lr_lambdas[0] = lambda epoch: 7.0
a schedule of schedules
    w_N = xgrad.ones(1, requires_grad=True)
    o_N = xgrad.optim.SGD([w_N], lr=0.5)
    L_N = xgrad.optim.lr_scheduler
    s_N = L_N.SequentialLR(o_N, [L_N.ConstantLR(o_N, 0.5, 2), L_N.ExponentialLR(o_N, 0.5)], milestones=[2])
    c_N = L_N.ChainedScheduler([L_N.ConstantLR(o_N, 0.5, 2), L_N.ExponentialLR(o_N, 0.5)])
  reads x * (s_N.get_last_lr()[0] + c_N.get_last_lr()[0] + s_N._schedulers[1].last_epoch)
  s_N.step()
  c_N.step()
  s_N._last_lr = [0.5]
a plateau
    w_N = xgrad.ones(1, requires_grad=True)
    o_N = xgrad.optim.SGD([w_N], lr=0.5)
    s_N = xgrad.optim.lr_scheduler.ReduceLROnPlateau(o_N, patience=0, factor=0.5)
  reads x * (s_N.get_last_lr()[0] + s_N.in_cooldown + s_N.num_bad_epochs)
  s_N.step(1.0)
  s_N.num_bad_epochs = 5
  s_N.cooldown_counter = 0
  s_N.cooldown_counter = 2
a schedule of the user's class
    w_N = xgrad.ones(1, requires_grad=True)
    o_N = xgrad.optim.SGD([w_N], lr=0.5)
    class S_N(xgrad.optim.lr_scheduler.LRScheduler):
        rate = 1.0
        def get_lr(self): return [base * self.rate / (1 + self.last_epoch) for base in self.base_lrs]
    s_N = S_N(o_N)
  reads x * s_N.get_last_lr()[0]
  s_N.step()
  S_N.rate = 3.0; s_N.step()
  s_N._last_lr = [0.5]
an optimizer's step
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    o_N = xgrad.optim.SGD([w_N], lr=0.5)
    def r_N(x):
        with xgrad.no_grad(): w_N.fill_(1.0)
        o_N.zero_grad(); (w_N * x).sum().backward(); o_N.step()
        return w_N.detach() * 1
  reads r_N(x)
  o_N.param_groups[0]['lr'] = 0.5
  o_N.param_groups[0]['lr'] = 0.25
  o_N.param_groups[0]['maximize'] = True
  o_N.param_groups[0]['maximize'] = False
  o_N.param_groups[0]['weight_decay'] = 0.5
  o_N.param_groups[0]['weight_decay'] = 0
an optimizer's own hooks
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    o_N = xgrad.optim.SGD([w_N], lr=0.5)
    k_N = [2.0]
    def double_N(o, args, kwargs): w_N.grad.mul_(k_N[0])
    h_N = o_N.register_step_pre_hook(double_N)
    def r_N(x):
        with xgrad.no_grad(): w_N.fill_(1.0)
        o_N.zero_grad(); (w_N * x).sum().backward(); o_N.step()
        return w_N.detach() * 1
  reads r_N(x)
  h_N.remove()
  h_N = o_N.register_step_pre_hook(double_N)
  h_N = o_N.register_step_post_hook(lambda o, args, kwargs: w_N.data.mul_(3.0))
  k_N[0] = 2.0
  k_N[0] = 3.0
hooks of all optimizers
    R_N = xgrad.optim.optimizer
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    o_N = xgrad.optim.SGD([w_N], lr=0.5)
    k_N = [2.0]
    def double_N(o, args, kwargs): w_N.grad.mul_(k_N[0])
    h_N = R_N.register_optimizer_step_pre_hook(double_N)
    def r_N(x):
        with xgrad.no_grad(): w_N.fill_(1.0)
        o_N.zero_grad(); (w_N * x).sum().backward(); o_N.step()
        return w_N.detach() * 1
  reads r_N(x)
  h_N.remove()
  h_N.remove(); h_N = R_N.register_optimizer_step_pre_hook(double_N)
  h_N.remove(); h_N = R_N.register_optimizer_step_post_hook(lambda o, args, kwargs: w_N.data.mul_(3.0))
  k_N[0] = 2.0
  k_N[0] = 3.0
hooks of all modules
    M_N = xgrad.nn.modules.module
    n_N = xgrad.nn.Linear(2, 2, dtype=xgrad.float64)
    xgrad.nn.init.ones_(n_N.weight); xgrad.nn.init.zeros_(n_N.bias)
    k_N = {'k': 2.0}
    def back_N(m, gi, go): return tuple(None if g is None else g * k_N['k'] for g in gi)
    h_N = M_N.register_module_forward_hook(lambda m, i, o: o * k_N['k'])
    def r_N(x):
        y = (x * 1).requires_grad_()
        return xgrad.autograd.grad(n_N(y).sum(), y)[0] + n_N(y).detach()
  reads r_N(x)
  h_N.remove()
  h_N.remove(); h_N = M_N.register_module_forward_hook(lambda m, i, o: o * k_N['k'])
  h_N.remove(); h_N = M_N.register_module_forward_pre_hook(lambda m, i: (i[0] * k_N['k'],))
  h_N.remove(); h_N = M_N.register_module_full_backward_hook(back_N)
  h_N.remove(); h_N = M_N.register_module_full_backward_pre_hook(lambda m, go: tuple(g * k_N['k'] for g in go))
  k_N['k'] = 2.0
  k_N['k'] = 3.0
a module's own hooks
    n_N = xgrad.nn.Linear(2, 2, dtype=xgrad.float64)
    xgrad.nn.init.ones_(n_N.weight); xgrad.nn.init.zeros_(n_N.bias)
    k_N = [2.0]
    h_N = n_N.register_forward_hook(lambda m, i, o: o * k_N[0])
  reads n_N(x).detach()
  h_N.remove()
  h_N.remove(); h_N = n_N.register_forward_hook(lambda m, i, o: o * k_N[0])
  h_N.remove(); h_N = n_N.register_forward_pre_hook(lambda m, i: (i[0] * k_N[0],))
  k_N[0] = 2.0
  k_N[0] = 3.0
a module of xgrad's
    d_N = xgrad.nn.Sequential(xgrad.nn.LeakyReLU(0.5), xgrad.nn.Softplus(beta=1.0))
  reads d_N(-x)
  d_N[0].negative_slope = 0.5
  d_N[0].negative_slope = 0.25
  d_N[1].beta = 1.0
  d_N[1].beta = 2.0
  d_N[1].threshold = 0.0
  d_N[1] = xgrad.nn.Identity()
  d_N.append(xgrad.nn.Tanh())
a parametrization
    n_N = xgrad.nn.Linear(2, 2, bias=False, dtype=xgrad.float64)
    xgrad.nn.init.ones_(n_N.weight)
    class P_N(xgrad.nn.Module):
        s = 2.0
        def forward(self, w): return w * self.s
    p_N = P_N()
    xgrad.nn.utils.parametrize.register_parametrization(n_N, 'weight', p_N)
  reads n_N(x).detach()
  p_N.s = 2.0
  p_N.s = 3.0
  P_N.s = 5.0
  xgrad.nn.utils.parametrize.register_parametrization(n_N, 'weight', P_N())
  xgrad.nn.utils.parametrize.remove_parametrizations(n_N, 'weight')
pruning
    n_N = xgrad.nn.Linear(2, 2, bias=False, dtype=xgrad.float64)
    xgrad.nn.init.ones_(n_N.weight)
    xgrad.nn.utils.prune.custom_from_mask(n_N, 'weight', xgrad.tensor([[1.0, 0.0], [0.0, 1.0]]))
  reads n_N(x).detach()
  n_N.weight_mask.fill_(1.0)
  n_N.weight_mask = xgrad.tensor([[0.0, 1.0], [1.0, 1.0]], dtype=xgrad.float64)
  xgrad.nn.utils.prune.remove(n_N, 'weight')
a weight norm
    n_N = xgrad.nn.utils.weight_norm(xgrad.nn.Linear(2, 2, bias=False, dtype=xgrad.float64))
  reads n_N(x).detach()
  n_N.weight_g.data.fill_(2.0)
  xgrad.nn.utils.remove_weight_norm(n_N)
a distribution
    p_N = xgrad.distributions.Normal(xgrad.zeros(2, dtype=xgrad.float64), xgrad.ones(2, dtype=xgrad.float64))
  reads p_N.log_prob(x)
  p_N.loc = xgrad.zeros(2, dtype=xgrad.float64)
  p_N.loc = xgrad.ones(2, dtype=xgrad.float64)
  p_N.scale = xgrad.tensor(2.0, dtype=xgrad.float64)
  p_N.__class__ = xgrad.distributions.Laplace
a distribution of the user's class
    class D_N(xgrad.distributions.Normal):
        k = 1.0
        @property
        def mean(self): return self.loc * self.k
    p_N = D_N(xgrad.ones(2, dtype=xgrad.float64), xgrad.ones(2, dtype=xgrad.float64))
  reads p_N.log_prob(x) + p_N.mean
  p_N.loc = xgrad.ones(2, dtype=xgrad.float64)
  p_N.loc = xgrad.tensor([3.0, 4.0], dtype=xgrad.float64)
  D_N.k = 2.0
a distribution of distributions
    B_N = xgrad.distributions.Normal(xgrad.zeros(2, dtype=xgrad.float64), xgrad.ones(2, dtype=xgrad.float64))
    p_N = xgrad.distributions.Independent(B_N, 1)
    t_N = xgrad.distributions.TransformedDistribution(B_N, [xgrad.distributions.AffineTransform(1.0, 2.0)])
  reads p_N.log_prob(x) + t_N.log_prob(x)
  p_N.base_dist.loc = xgrad.ones(2, dtype=xgrad.float64)
  B_N.loc = xgrad.zeros(2, dtype=xgrad.float64)
  t_N.transforms[0].scale = 3.0
  t_N.transforms[0].loc = 3.0
  t_N.transforms = []
  t_N.transforms = [xgrad.distributions.ExpTransform()]
  p_N.reinterpreted_batch_ndims = 0
a lazy property
    p_N = xgrad.distributions.Bernoulli(probs=xgrad.tensor([0.25, 0.5], dtype=xgrad.float64))
  reads x * p_N.logits
  p_N.probs = xgrad.tensor([0.5, 0.75], dtype=xgrad.float64)
  p_N.__dict__.pop('logits', None)
  p_N = xgrad.distributions.Bernoulli(probs=xgrad.tensor([0.1, 0.5], dtype=xgrad.float64))
a transform
    D_N = xgrad.distributions
    t_N = D_N.ComposeTransform([D_N.AffineTransform(1.0, 2.0), D_N.PowerTransform(xgrad.tensor(2.0))])
  reads t_N(x) + t_N.inv(x)
  t_N.parts[0].scale = 2.0
  t_N.parts[0].scale = 3.0
  t_N.parts[1].exponent = xgrad.tensor(3.0)
  t_N.parts[0] = xgrad.distributions.AffineTransform(0.0, 5.0)
a constraint
    c_N = xgrad.distributions.constraints.interval(0.0, 2.0)
  reads x * c_N.check(x)
  c_N.upper_bound = 2.0
  c_N.upper_bound = 1.5
  c_N.lower_bound = 1.5
a transform's registry
    R_N = xgrad.distributions.transform_to
    class C_N(xgrad.distributions.constraints.Constraint): pass
    c_N = C_N()
    R_N.register(C_N, lambda c: xgrad.distributions.AffineTransform(0.0, 2.0))
  reads R_N(c_N)(x)
  R_N.register(C_N, lambda c: xgrad.distributions.AffineTransform(0.0, 2.0))
  R_N.register(C_N, lambda c: xgrad.distributions.AffineTransform(0.0, 3.0))
register_kl
    D_N = xgrad.distributions
    class K_N(D_N.Normal): pass
    class L_N(K_N): pass
    p_N = L_N(xgrad.zeros(2), xgrad.ones(2))
    D_N.register_kl(K_N, K_N)(lambda p, q: p.loc + 1)
  reads x * D_N.kl_divergence(p_N, p_N)
  D_N.register_kl(K_N, K_N)(lambda p, q: p.loc + 1)
  D_N.register_kl(K_N, K_N)(lambda p, q: p.loc + 5)
  D_N.register_kl(L_N, L_N)(lambda p, q: p.loc + 7)
a closed divergence's value
    D_N = xgrad.distributions
    class K_N(D_N.Normal): pass
    k_N = [2.0]
    p_N = K_N(xgrad.zeros(2), xgrad.ones(2))
    D_N.register_kl(K_N, K_N)(lambda p, q: p.loc + k_N[0])
  reads x * D_N.kl_divergence(p_N, p_N)
  k_N[0] = 2.0
  k_N[0] = 3.0
a TensorDataset
    d_N = xgrad.utils.data.TensorDataset(xgrad.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=xgrad.float64))
  reads x * d_N[1][0] * len(d_N)
  d_N.tensors = (xgrad.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=xgrad.float64),)
  d_N.tensors = (xgrad.tensor([[1.0, 2.0], [5.0, 6.0]], dtype=xgrad.float64),)
  d_N.tensors[0][1] = 9.0
a Subset
    s_N = xgrad.utils.data.Subset([2.0, 3.0, 5.0], [0, 1])
  reads x * s_N[1] * len(s_N)
  s_N.indices[1] = 2
  s_N.indices = [0, 1]
  s_N.dataset = [7.0, 11.0, 13.0]
a ConcatDataset
    s_N = xgrad.utils.data.ConcatDataset([[2.0, 3.0], [5.0]])
  reads x * s_N[2]
  s_N.datasets[1] = [7.0]
  s_N.datasets[1][0] = 11.0
  s_N.cumulative_sizes[0] = 1
  s_N.cumulative_sizes[0] = 2
a dataset of the user's class
    class D_N(xgrad.utils.data.Dataset):
        def __init__(self): self.items = [2.0, 3.0]
        def __getitem__(self, i): return self.items[i] * self.scale
        def __len__(self): return len(self.items)
        scale = 1.0
    d_N = D_N()
  reads x * d_N[1]
  d_N.items[1] = 3.0
  d_N.items[1] = 5.0
  d_N.scale = 2.0
  D_N.scale = 3.0
a collate_fn
    k_N = [2.0]
    l_N = xgrad.utils.data.DataLoader([1.0, 2.0, 3.0], batch_size=2, collate_fn=lambda batch: k_N[0] * batch[0])
    def r_N(x): return x * sum(batch for batch in l_N)
  reads r_N(x)
  k_N[0] = 2.0
  k_N[0] = 3.0
  l_N.collate_fn = lambda batch: 7.0 * batch[-1]
  l_N.dataset[0] = 5.0
a sampler
    s_N = xgrad.utils.data.BatchSampler(xgrad.utils.data.SequentialSampler([1, 2, 3]), batch_size=2, drop_last=False)
    def r_N(x): return x * sum(sum(batch) * (i + 1) for i, batch in enumerate(s_N)) * len(s_N)
  reads r_N(x)
  s_N.batch_size = 2
  s_N.batch_size = 1
  s_N.drop_last = True
  s_N.sampler = xgrad.utils.data.SequentialSampler([1, 2, 3, 4])
a sampler's epoch
    s_N = xgrad.utils.data.DistributedSampler([1, 2, 3, 4], num_replicas=2, rank=0, shuffle=False)
    def r_N(x): return x * sum(i + 1 for i in s_N)
  reads r_N(x)
  s_N.rank = 0
  s_N.rank = 1
  s_N.num_replicas = 4; s_N.num_samples = 1; s_N.total_size = 4
an averaged model
    n_N = xgrad.nn.Linear(2, 2, bias=False, dtype=xgrad.float64)
    a_N = xgrad.optim.swa_utils.AveragedModel(n_N)
  reads a_N(x).detach()
  n_N.weight.data.add_(1.0)
  a_N.update_parameters(n_N)
  a_N.module.weight.data.fill_(2.0)
the averages' function
    n_N = xgrad.nn.Linear(2, 2, bias=False, dtype=xgrad.float64)
    k_N = [0.5]
    a_N = xgrad.optim.swa_utils.AveragedModel(n_N, avg_fn=lambda a, b, n: a * k_N[0] + b)
    def r_N(x):
        n_N.weight.data.fill_(1.0); a_N.module.weight.data.fill_(2.0); a_N.n_averaged.fill_(1)
        a_N.update_parameters(n_N)
        return a_N(x).detach()
  reads r_N(x)
  k_N[0] = 0.5
  k_N[0] = 0.25
  a_N.avg_fn = lambda a, b, n: a * 3 + b
a gradient scaler
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    s_N = xgrad.amp.GradScaler(init_scale=4.0)
  reads x * s_N.scale(w_N.detach())
  s_N = xgrad.amp.GradScaler(init_scale=2.0)
  s_N._enabled = False
  s_N._enabled = True
an autocast
    a_N = xgrad.autocast('cpu', dtype=xgrad.bfloat16)
    def r_N(x):
        with a_N: return (x.float()[None] @ x.float()[:, None]).double() / 3 + x
  reads r_N(x)
  a_N = xgrad.autocast('cpu', dtype=xgrad.float16)
  a_N = xgrad.autocast('cpu', enabled=False)
partial of ours
    p_N = functools.partial(xgrad.add, alpha=2)
    q_N = functools.partial(xgrad.nn.functional.leaky_relu, negative_slope=0.5)
  reads p_N(x, q_N(-x))
  p_N.keywords['alpha'] = 2
  p_N.keywords['alpha'] = 3
  q_N.keywords['negative_slope'] = 0.25
  p_N = functools.partial(xgrad.sub, alpha=3)
an object of ours in a list
    w_N = xgrad.ones(1, requires_grad=True)
    l_N = [xgrad.optim.lr_scheduler.ExponentialLR(xgrad.optim.SGD([w_N], lr=0.5), gamma=0.5)]
  reads x * l_N[0].get_last_lr()[0]
  l_N[0].step()
  l_N[0]._last_lr = [0.25]
a method of ours
    w_N = xgrad.ones(1, requires_grad=True)
    s_N = xgrad.optim.lr_scheduler.ExponentialLR(xgrad.optim.SGD([w_N], lr=0.5), gamma=0.5)
    m_N = s_N.get_last_lr
  reads x * m_N()[0]
  s_N.step()
  s_N._last_lr = [0.25]
  m_N = lambda: [7.0]
a custom operator
    @xgrad.library.custom_op('guards_N::twice', mutates_args=())
    def t_N(x: xgrad.Tensor) -> xgrad.Tensor: return x * k_N
    k_N = 2.0
    t_N.register_fake(lambda x: xgrad.empty_like(x))
  reads t_N(x)
  k_N = 2.0
a formula of ours
    class F_N(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, a): return a * 2
        @staticmethod
        def backward(ctx, g): return g * 2
    w_N = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
  reads xgrad.autograd.grad((F_N.apply(w_N) * x).sum(), w_N)[0]
  F_N.backward = staticmethod(lambda ctx, g: g * 5)
  F_N.forward = staticmethod(lambda ctx, a: a * 3)
validate_args
    def r_N(x):
        try: return xgrad.distributions.Uniform(2.0, xgrad.tensor(1.0)).low * x
        except ValueError: return x * 3
  reads x * (2.0 if xgrad.distributions.Distribution._validate_args else 3.0)
  xgrad.distributions.Distribution.set_default_validate_args(False)
  xgrad.distributions.Distribution.set_default_validate_args(True)
narrow
    def r_N(x): return x * (2.0 if xgrad.config.narrow == 'warn' else 3.0)
  reads r_N(x)
  xgrad.config.narrow = 'error'
  xgrad.config.narrow = 'warn'
a generator
    g_N = xgrad.Generator().manual_seed(1)
  reads x * xgrad.rand(2, generator=g_N).shape[0]
  g_N.manual_seed(2)
  g_N = xgrad.Generator().manual_seed(1)

# copies
copy
    class C_N:
        def __init__(self): self.k = 2.0
    c_N = C_N()
  reads x * copy.copy(c_N).k
  c_N.k = 2.0
  c_N.k = 3.0
deepcopy
    class C_N:
        def __init__(self): self.k = [2.0]
    c_N = C_N()
  reads x * copy.deepcopy(c_N).k[0]
  c_N.k[0] = 2.0
  c_N.k[0] = 3.0
pickle
    import pickle
    class C_N:
        __module__ = 'guards_classes'
        def __init__(self): self.k = [2.0]
    C_N.__qualname__ = 'C_N'
    sys.modules.setdefault('guards_classes', types.ModuleType('guards_classes'))
    setattr(sys.modules['guards_classes'], 'C_N', C_N)
    c_N = C_N()
  reads x * pickle.loads(pickle.dumps(c_N)).k[0]
  c_N.k[0] = 2.0
  c_N.k[0] = 3.0
a replaced builtin
    import builtins
    a_N = builtins.abs
  reads x * abs(-2.0)
  builtins.abs = lambda v: 5.0
  builtins.abs = a_N
"""


def _parsed(text):
    """{kind: (setup, what is read, [changes])}."""
    found = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            setup, changes = [], []
            kind = line
        elif line.startswith("    "):
            setup.append(line[4:])
        elif line.startswith("  reads "):
            found[kind] = "\n".join(setup), line.removeprefix("  reads "), changes
        else:
            changes.append(line[2:])
    return found


INGREDIENTS = _parsed(_TEXT)
