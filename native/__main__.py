"""``python -m native``: says which path workers will run."""

import native

if __name__ == "__main__":
    way_out = "" if native.core is not None else "; with a C compiler, make setup builds the core"
    print(f"workers run on: {native.spoken}{way_out}")  # noqa: T201
