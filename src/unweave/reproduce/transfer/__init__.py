"""``unweave reproduce transfer``: content and style spaces on photographs, by downstream tasks (paper, section 5.3)."""
