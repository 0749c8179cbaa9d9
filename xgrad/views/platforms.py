"""forms: chooses by platform (cpu, gpu, tpu) how programs that read and write views are written.

The figures that decided are of libtpu 0.0.42's compiler for a v5e, float32: bytes that it counts, and seconds of
compiling.

| form      | case                               | usual                | on a TPU              |
| --------- | ---------------------------------- | -------------------- | --------------------- |
| `guarded` | `x[i]` of (1024, 1024)             | 16.8 MB              | 0.017 MB              |
| `options` | `c[:, :, i]` of (8, 8, 2048, 64)   | 141 MB               | 6.3 MB                |
|           | `c[:, :, i : i + 75]`, 128 at last | 279 MB               | 10.3 MB               |
| `repeats` | `x[:, ::2] = v` of (1024, 1024)    | 24 s                 | 1 s, 61 MB            |
| `blocks`  | `unfold(0, 1024, 512)` of 1e6      | 8,700 MB             | 60 MB                 |
|           | `unfold(1, 8, 4)` of (1024, 1024)  | 1,200 MB             | 71 MB                 |
| `shifted` | `view(int16)` of (1024, 1024)      | 281,000 cycles       | 85,000 cycles         |
|           | `view(int16)` of (1048576,)        | 562 MB               | 67 MB                 |

Invariant: nothing else in the package chooses a form of a view's program by its platform.
"""

from dataclasses import dataclass, field

from ..base.platforms import traced_for

ROW = 1024  # elements of the rows that a long vector is cut into


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of one platform.  The defaults are the CPU's and the GPU's."""

    # A part that is read by a start which is an operand is selected by that start.  XLA:TPU then has a fusion, and does
    # not move the whole root to its fast memory for a lone dynamic-slice.
    guarded: bool = False
    # Elements are spread in the last dimension by repeats and a mask, not by interior padding.
    repeats: bool = False
    # The most slices that replace a gather or scatter of windows.  0: windows are gathered.
    blocks: int = 0
    # Elements are cast to parts of themselves by shifts, column by column, not by a bit cast.
    shifted: bool = False
    # The compiler's options for a program that reads a part: a read alone, or a lazy program with one.
    options: dict[str, str] = field(default_factory=dict)


_USUAL = Forms()
FORMS = {
    "tpu": Forms(
        guarded=True, repeats=True, blocks=64, shifted=True, options={"xla_max_cross_program_prefetches": "0"}
    ),
}


def forms(platform: str | None = None) -> Forms:
    """Return the forms of a platform, or of the one that is traced for."""
    return FORMS.get(platform or traced_for(), _USUAL)
