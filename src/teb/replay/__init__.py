"""Stored experience."""
