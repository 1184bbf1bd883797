"""``python -m native``: says which path workers will run."""

import native

if __name__ == "__main__":
    built = native.core is not None or native.spoken.endswith("=off")
    way_out = "" if built else "; with a C compiler, make setup builds it"
    print(f"workers run on: {native.spoken}{way_out}")
