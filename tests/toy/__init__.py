"""What tests of several subpackages share, so that they share compiled programs too.

- `corpus`: a corpus that counts in two languages (`CORPUS`, `write_raw`, `prepare`).
- `untrained.write(folder)`: a run's folder with random parameters, for tests of
  decoding, export and pictures. `SIZES` are its sizes: change as little as needed,
  for each other size, slice or length is another program to compile.
- `steps`: `train_step` on numbers of devices, of one tiny model and one batch's shape.
- `runs`, `programs`: a task that trains in a second (`TINY`) or until it translates
  (`SETTINGS`), and our commands on it in forked processes, which start quickly.
- `forms`: random arrays, and the operations, also in an accelerator's forms.
- `results`: results as evaluations leave them.

Tests have one CPU device. A test of several devices has the marker `devices`; it runs
by `JAX_NUM_CPU_DEVICES=8 pytest -m devices FILE`, as `make test` does after all others.
"""
