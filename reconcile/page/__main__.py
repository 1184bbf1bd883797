"""Draw the page again: ``python -m reconcile.page figures.json > report.html``."""

import sys

from reconcile.page.document import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
