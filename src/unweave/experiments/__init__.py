"""The experiments: the demo, those of the paper, and those it lacks."""
