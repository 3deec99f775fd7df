"""The control API and the server that holds it together with the gateway."""
