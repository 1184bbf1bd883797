"""``python -m app``: the same as the console script ``ringfence``."""

from app.cli import main

main()
