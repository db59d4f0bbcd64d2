"""Compiles a config for accelerators that are not there, and tells what it needs.

chips.py has the accelerators' published rates, compile.py the real training step and
the real search, program.py reads the compiled programs, estimate.py tells the rest.
"""
