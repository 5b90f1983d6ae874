"""Pure functions: tensors in, tensors out, each with its formula and the source of the formula."""
