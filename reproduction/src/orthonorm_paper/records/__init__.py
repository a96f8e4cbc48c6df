"""What decides a run, what came of it, and the files that hold both."""
