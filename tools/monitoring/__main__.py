"""`python -m tools.monitoring`."""

import sys

from tools.monitoring import main

sys.exit(main(sys.argv[1:]))
