//! Client of the agent.
