"""viz.program: a queue before it runs, and programs as XLA has compiled them."""

import jax
import jax.numpy as jnp
import pytest

import xgrad
from tests.viz.checks import check_layout
from xgrad import viz
from xgrad.viz.hlo import scene_of_hlo

HLO = """\
HloModule jit_f, entry_computation_layout={(f32[4]{0})->(f32[4]{0}, f32[])}

%fused_computation (param_0: f32[4]) -> f32[4] {
  %param_0 = f32[4]{0} parameter(0)
  %constant.1 = f32[] constant(2)
  %b.1 = f32[4]{0} broadcast(%constant.1), dimensions={}
  %mul.1 = f32[4]{0} multiply(%param_0, %b.1), metadata={op_name="jit(f)/jit(scale)/mul"}
  ROOT %sin.1 = f32[4]{0} sine(%mul.1), metadata={op_name="jit(f)/sin"}
}

%region_0 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}

ENTRY %main (x.1: f32[4], unused: s32[2]) -> (f32[4], f32[]) {
  %x.1 = f32[4]{0} parameter(0), metadata={op_name="x[\\"<a>\\"]"}
  %unused = s32[2]{0} parameter(1)
  %fusion = f32[4]{0} fusion(%x.1), kind=kLoop, calls=%fused_computation, metadata={op_name="jit(f)/sin"}
  %zero = f32[] constant(0)
  %reduce.2 = f32[] reduce(%fusion, %zero), dimensions={0}, to_apply=%region_0, metadata={op_name="jit(f)/reduce_sum"}
  ROOT %tuple = (f32[4]{0}, /*index=1*/f32[]) tuple(%fusion, %reduce.2)
}
"""
TEXT = """\
x[\\"<a>\\"]  [4]  16 B
[4] → fusion  scale, sin  reads 16 B, writes 16 B
├─ [4] → reduce  reduce_sum  reads 20 B, writes 4 B
│  [] → results  20 B  #1
└─ [4] → results  #1, above
2 kernels, 1 of them fusions"""


def test_text_of_an_optimized_program():
    assert str(viz.program(HLO)).splitlines() == TEXT.splitlines()
    check_layout(viz.program(HLO).layout)
    with pytest.raises(ValueError, match="no ENTRY computation"):
        scene_of_hlo("something else")


def test_pending_operations_are_drawn_and_stay_pending():
    x = xgrad.ones(4, 3)
    xgrad.sync()
    with xgrad.lazy():
        y = (x * 2).tanh()
        drawing = viz.program()
        assert "tanh" in xgrad.lazy.pending()
        text = str(drawing)
        total = y.sum()
    assert "x  [4, 3]  48 B" in text
    assert "mul  with 2  writes 48 B  test_program.py:" in text
    assert "[4, 3] → y: tanh  writes 48 B" in text
    assert text.endswith("2 operations are pending; one by one they would write 96 B")
    check_layout(drawing.layout)
    xgrad.sync()
    text = str(viz.program())
    assert text.startswith("the last lazy program")
    assert "XLA's estimate" in text
    assert total.item() == pytest.approx(12 * 0.9640276)


def test_a_compiled_function_is_drawn():
    @xgrad.compile
    def step(x):
        return (x * 2).tanh().sum()

    with pytest.raises(RuntimeError, match="has not run: call it"):
        viz.program(step)
    x = xgrad.ones(4, 3)
    by_arguments = str(viz.program(step, x))
    step(x)
    drawing = viz.program(step)
    assert str(drawing) == by_arguments
    assert "[4, 3]  48 B" in by_arguments
    assert "tanh" in by_arguments
    check_layout(drawing.layout)


def test_jax_programs_are_drawn_and_other_objects_refused():
    lowered = jax.jit(lambda x: jnp.sin(x) * 2).lower(jnp.ones(3))
    assert str(viz.program(lowered)) == str(viz.program(lowered.compile()))
    with pytest.raises(TypeError, match="but got int"):
        viz.program(3)
