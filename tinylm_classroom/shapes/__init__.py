"""Code with its real shapes: comments that run, traces, and errors explained."""
