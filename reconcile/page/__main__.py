"""``python -m reconcile.page figures.json > report.html`` draws the page again."""

import sys

from reconcile.page.document import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
