"""Ringfence's command line under the sampler: ``python -m bench.sampled_worker RESULT VERB ...``."""

import sys
from pathlib import Path

from app.cli import main
from bench.sampler import Sampler

if __name__ == "__main__":
    sampler = Sampler()
    sampler.start()
    try:
        main(sys.argv[2:])
    finally:
        sampler.save(Path(sys.argv[1]))
