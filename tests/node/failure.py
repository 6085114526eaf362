"""The one error of the node scripts, and its exit status, distinct from a failure of the command."""

# `env`, `timeout` and container tools use 125 for "the tool failed, not your command".
NODE_FAILED = 125


class NodeError(Exception):
    """The node could not be made or did not come up; the message has the remedy."""
