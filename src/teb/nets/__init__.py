"""Networks shared by all algorithms."""
