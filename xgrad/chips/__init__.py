"""Compiles programs for chips that are not in this machine, by the chips' compilers, and reports what these say.

    target ──► ask: trace for the platform, lower ──► child process: compile ──► Answer, kept in a folder

A child process compiles, since a failed check ends it; see `process.py`.  Nothing of this is loaded by `import xgrad`.
"""

from .answers import Answer as Answer
from .report import ChipReport as ChipReport
from .targets import Target as Target
from .targets import available as available
from .targets import shapes as shapes
from .targets import target as target
