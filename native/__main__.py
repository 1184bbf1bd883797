"""``python -m native``: prints the path that workers use."""

import native

if __name__ == "__main__":
    built = native.core is not None or native.spoken.endswith("=off")
    way_out = "" if built else "; with a C compiler, make setup builds it"
    print(f"workers run on: {native.spoken}{way_out}")
