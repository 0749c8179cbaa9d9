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
ALWAYS = ("xgrad.set_default_dtype(xgrad.float32)", "xgrad.set_grad_enabled(True)")  # between cases

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
