"""Settings of the whole test run."""

import os

# Small models gain nothing from more threads, and tests of several processes would take each other's cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
