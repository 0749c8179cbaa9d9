"""python -m xgrad doctor | demo | compare | conform | bench"""

import sys

from .cli import main

sys.exit(main())
