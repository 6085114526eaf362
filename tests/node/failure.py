"""The one error of the node scripts, and the exit status that tells it from a failure of the command."""

# 125 is what `env`, `timeout` and container tools use for "the tool failed, not your command".
NODE_FAILED = 125


class NodeError(Exception):
    """The node could not be made or did not come up; the message says what to do about it."""
