"""The commands of the core. Those of a feature are in its own room."""
