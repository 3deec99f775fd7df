"""Other people's code, kept from this machine: namespaces, limits, bounded output, and an end in every case."""
