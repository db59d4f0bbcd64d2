"""The hardware, libraries and settings that a measurement was made with."""

import importlib.metadata
import os

from transformer_jax.machine import environment, platform

PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'numpy', 'sentencepiece')
RIVALS = ('torch', 'transformers', 'ctranslate2')
SETTINGS = ('GLIBC_TUNABLES', 'XLA_FLAGS', 'JAX_PLATFORMS', 'JAX_NUM_CPU_DEVICES')
SETTINGS += ('OMP_NUM_THREADS', 'CT2_USE_MKL', 'XLA_PYTHON_CLIENT_PREALLOCATE')


def describe() -> dict:
  """One object for JSON."""
  model, flags = environment.processor()
  installed = {d.name.lower() for d in importlib.metadata.distributions() if d.name}
  rivals = tuple(name for name in RIVALS if name in installed)
  return {
    'device': platform.describe_device(),
    'processor': model,
    'flags': flags,
    'threads': len(environment.cores()),  # of each program that was timed
    'load': list(os.getloadavg()),  # over 1, 5 and 15 minutes, this program included
    'versions': environment.versions(PACKAGES + rivals),
    'commit': environment.commit(),
    'environment': {k: os.environ[k] for k in SETTINGS if k in os.environ},
  }
