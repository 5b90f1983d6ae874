"""The paper's statements as experiments on finite decision processes; `teb theory` runs them."""
