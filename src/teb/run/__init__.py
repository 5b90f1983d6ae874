"""Running an agent on a task: the loop, its checkpoints, its numbers."""
