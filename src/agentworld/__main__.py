"""`python -m agentworld`."""

from agentworld.cli import main

if __name__ == "__main__":
    main()
