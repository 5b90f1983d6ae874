"""The paper's tables and figures as data: which runs each needs, and how it is drawn."""
