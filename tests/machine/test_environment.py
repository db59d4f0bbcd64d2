"""A result's processor, and the commit of its code."""

import os
import pathlib
import subprocess

from transformer_jax.machine import environment


def test_processor(tmp_path: pathlib.Path):
  text = 'processor: 0\nmodel name : A Chip\nflags\t: fpu avx2 avx512f amx_bf16\n'
  (tmp_path / 'cpuinfo').write_text(text)
  expected = 'A Chip', ['amx_bf16', 'avx2', 'avx512f']
  assert environment.processor(tmp_path / 'cpuinfo') == expected
  assert environment.processor(tmp_path / 'none')[1] == []


def test_the_commit_of_a_checkout(tmp_path: pathlib.Path, monkeypatch):
  """Clean, changed or none; none if only a folder above is a repository."""
  for name in [name for name in os.environ if name.startswith('GIT_')]:
    monkeypatch.delenv(name)
  monkeypatch.setenv('GIT_CONFIG_GLOBAL', os.devnull)  # the user may sign commits
  monkeypatch.setenv('GIT_CONFIG_NOSYSTEM', '1')
  who = '-c', 'user.name=a', '-c', 'user.email=a@b'
  git = lambda *words: subprocess.run(
    ['git', *words], cwd=tmp_path, check=True, capture_output=True, text=True
  ).stdout.strip()
  package = tmp_path / 'package'
  package.mkdir()
  assert environment.commit(package) is None
  (package / 'a.py').write_text('1')
  git('init')
  git('add', '.')
  git(*who, 'commit', '-m', 'a')
  head = git('rev-parse', 'HEAD')
  assert environment.commit(package) == head
  (package / 'a.py').write_text('2')
  assert environment.commit(package) == head + '+'
  installed = tmp_path / '.venv' / 'package'
  installed.mkdir(parents=True)
  (installed / 'a.py').touch()
  assert environment.commit(installed) is None
