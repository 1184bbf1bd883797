"""``python -m reconcile``."""

import sys

from reconcile.job import main

sys.exit(main())
