"""What is drawn and tabulated from run records; this package knows numpy, matplotlib, rich and files only."""
