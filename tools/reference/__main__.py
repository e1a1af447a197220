"""`python -m tools.reference`."""

import sys

from tools.reference import main

sys.exit(main(sys.argv[1:]))
