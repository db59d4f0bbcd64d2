"""What a config costs: compiled for devices that one does not have, timed on one's own.

topologies.py has the names of devices, compile.py the training step and the search for
them, cost.py the lines of `describe --topology` and `describe --time`.
"""
