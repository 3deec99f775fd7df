"""Measurements of the pool, each beside a flat table in the same process: `agentworld bench pool`.

A section is a module with one function that takes a `Bench` and gives figures; `pool.SECTIONS` lists them in order.
"""
