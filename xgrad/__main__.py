"""Runs the command line: python -m xgrad doctor | demo | compare | chip | conform | bench."""

import sys

from .cli import main

sys.exit(main())
