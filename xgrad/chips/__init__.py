"""xgrad.chips compiles programs for chips that are not in this machine, and reports what their compilers say.

    target ──► ask: trace for the platform, lower ──► child process: compile ──► Answer, kept in a folder

Users call `xgrad.target`, `xgrad.compare(target=)` or `python -m xgrad chip`.  A child process compiles, since a failed
check in the compiler ends its process; see `process.py`.  Nothing of this is loaded by `import xgrad`.
"""

from .answers import Answer as Answer
from .report import ChipReport as ChipReport
from .targets import Target as Target
from .targets import available as available
from .targets import shapes as shapes
from .targets import target as target
