"""python -m xgrad doctor | demo | compare | bench"""

import sys

from .cli import main

sys.exit(main())
