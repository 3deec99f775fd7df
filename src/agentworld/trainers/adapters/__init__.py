"""Batches in the layouts of trainers. Each adapter is a file here and an entry point of `agentworld.adapters`."""

from agentworld.records import Adapter, AdapterNeeds, adapt, adapter_by_name, adapter_names
from agentworld.trainers.adapters.samples import Sample, SampleOptions, Samples, read_samples

__all__ = [
    "Adapter",
    "AdapterNeeds",
    "Sample",
    "SampleOptions",
    "Samples",
    "adapt",
    "adapter_by_name",
    "adapter_names",
    "read_samples",
]
