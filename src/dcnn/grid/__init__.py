"""Grids of runs: comparisons, reproduced tables and searches, on this machine or on Ray."""
