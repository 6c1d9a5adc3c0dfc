"""The contract: what users see, as calls through public names with their recorded results."""
