"""Inside verl: its agent loop runs our agents on its own engines, through a gateway and a pool of this process.

`agent_loop` and `trainer` hold what verl loads by name, so they import it; nothing else here does.
"""
