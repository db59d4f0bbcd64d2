"""What tests of several subpackages share, so that they share compiled programs too.

- `config.tiny(**changes)`: the config of most of these tests.
- `corpus`: a corpus that counts in two languages (`write_raw`, `prepare`).
- `untrained.write(folder)`: a run's folder with random parameters, for tests of
  decoding, export and pictures. Change as little as needed of `config.TINY` and
  `untrained.SIZES`: each other size or length is another program to compile.
- `steps`: `train_step` on numbers of devices, of one tiny model and one batch's shape.
- `runs`, `programs`: a task that trains in a second (`TINY`) or until it translates
  (`SETTINGS`), and our commands on it in forked processes, which start quickly.
- `forms`: random arrays, and the operations, also in an accelerator's forms.
- `results`: results as evaluations leave them.
"""
