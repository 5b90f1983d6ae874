"""What acts and learns: protocols, the backbone, the composition of parts, and the registry of agents."""
