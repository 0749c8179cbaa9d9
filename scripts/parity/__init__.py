"""Compare xgrad with torch on torch's own operator database: the figures of docs/operators.md.

    python -m scripts.parity --write            # all entries in all dtypes, into docs/parity.json
    python -m scripts.parity mul linalg.svd     # these entries only: their marks, and what differs
    python scripts/make_operators.py            # then: docs/operators.md, which shows the marks

The database is in torch's wheel: 702 entries, each with a function, its forms, and inputs.  A check runs one procedure
under torch and under xgrad, on the same inputs with the same cotangents and tangents, and compares all that comes out
(cases.py: inputs and procedures; libraries.py: the two libraries; compare.py: when they agree).
"""

import os

from tests.flags import set_flags

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
set_flags()  # most of the time is compiling
