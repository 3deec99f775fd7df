"""The whole lifecycle on this machine: collect, reward, fine-tune, improve, evaluate. No network, no GPU."""
