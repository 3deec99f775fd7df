"""Experiments: does data from the factory train agents? One axis at a time from one base cell, on a CPU.

    python -m experiments list
    python -m experiments run [CELL...] [--seeds 3] [--minutes 4]
    python -m experiments page

Each run of a cell with a seed is a tree of processes on loopback (engine, gateway, agents, trainer) and leaves one JSON
file in results/; docs/experiments.md is made from these. Left out: more than one machine, models that need a GPU.
"""
