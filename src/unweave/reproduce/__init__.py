"""The experiments of the paper, and some that it lacks: one package for each, using the public API of unweave alone."""
