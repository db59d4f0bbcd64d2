"""The machine, the libraries and the settings that figures were measured with."""

import importlib.metadata
import os

from transformer_jax.machine import platform, processor, provenance

PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'numpy', 'sentencepiece')
RIVALS = ('torch', 'transformers', 'ctranslate2')
SETTINGS = ('GLIBC_TUNABLES', 'XLA_FLAGS', 'JAX_PLATFORMS', 'JAX_NUM_CPU_DEVICES')
SETTINGS += ('OMP_NUM_THREADS', 'CT2_USE_MKL', 'XLA_PYTHON_CLIENT_PREALLOCATE')


def describe() -> dict:
  """One object for JSON. GLIBC_TUNABLES tells whether memory came in huge pages."""
  model, flags = processor.describe()
  return {
    'device': platform.describe_device(),
    'processor': model,
    'flags': flags,
    'threads': len(processor.cores()),  # of every program
    'load': list(os.getloadavg()),  # of 1, 5 and 15 minutes, this program's included
    'versions': provenance.versions(PACKAGES + installed()),
    'commit': provenance.commit(),
    'environment': {k: os.environ[k] for k in SETTINGS if k in os.environ},
  }


def installed() -> tuple[str, ...]:
  """Which of the rivals' packages there are."""
  there = {d.name.lower() for d in importlib.metadata.distributions() if d.name}
  return tuple(name for name in RIVALS if name in there)
