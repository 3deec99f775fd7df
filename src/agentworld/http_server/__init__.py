"""The HTTP/1.1 server below `agentworld serve`: connections, one worker's life, and the process that keeps workers.

It serves any ASGI application, on the event loop's own thread: a request whose head and body came together is given to
the application, and its answer to the socket, without another thread or another coroutine.
"""
