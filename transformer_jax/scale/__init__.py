"""Compiles a config for accelerators that this machine does not have.

chips.py has the accelerators' published rates, compile.py the real training step and
the real search, program.py reads the compiled programs, estimate.py computes
the least time of a step.
"""
