"""Hosts that are silent, refuse or fail are found out within the limit."""

import pathlib
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest

import toy.host
from transformer_jax.data import downloads


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch) -> Iterator[toy.host.Host]:
  monkeypatch.setenv('no_proxy', '*')  # which counts before NO_PROXY
  for name in 'abc':
    (tmp_path / name).write_bytes(name.encode() * 100_000)
  (tmp_path / 'empty').touch()
  host = toy.host.Host(tmp_path)
  yield host
  host.close()


def test_answers(host: toy.host.Host):
  """Redirections count; what is behind them is not read."""
  host.faults['/b'] = '/a'
  urls = [host.url(path) for path in ('a', 'b', 'c', 'empty', 'a')]
  assert downloads.unanswered(urls) == {}


def not_found(name: str, *_: object) -> None:
  raise socket.gaierror(-2, 'Name or service not known')


def test_all_dead_addresses_are_named(host: toy.host.Host, monkeypatch):
  look_up = socket.getaddrinfo
  unknown = lambda name, *rest: (not_found if 'no.' in name else look_up)(name, *rest)
  monkeypatch.setattr(socket, 'getaddrinfo', unknown)
  host.faults |= {'/b': '404', '/c': '503'}
  refusing = toy.host.refusing_url()
  dead = downloads.unanswered([*map(host.url, 'abc'), refusing, 'http://no.invalid/x'])
  assert dead.keys() == {
    *(host.url('b'), host.url('c'), refusing, 'http://no.invalid/x')
  }
  assert dead[host.url('b')] == '404 Not Found'
  assert dead[host.url('c')] == '503 Service Unavailable'
  assert dead[refusing] == '[Errno 111] Connection refused'
  assert re.fullmatch(
    r"Failed to resolve 'no.invalid' \(.*\)", dead['http://no.invalid/x']
  )
  assert downloads.describe({'u': 'x', 'v': 'y'}) == 'no answer from u (x), v (y)'


def test_a_name_that_is_not_looked_up_in_time(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setattr(downloads, 'LIMIT', 1)
  over = threading.Event()

  def slow(*_: object) -> None:
    over.wait(60)
    raise socket.gaierror(-2, 'x')

  monkeypatch.setattr(socket, 'getaddrinfo', slow)
  url = 'http://slow.invalid/x'
  assert downloads.unanswered([url]) == {url: 'silent for 1 s'}
  over.set()


def test_a_silent_host_is_asked_once(host: toy.host.Host, monkeypatch):
  monkeypatch.setattr(downloads, 'LIMIT', 1)
  host.faults[''] = 'silent'
  start = time.monotonic()
  dead = downloads.unanswered([*map(host.url, 'abc')])
  assert time.monotonic() - start < 3
  assert dead == dict.fromkeys(map(host.url, 'abc'), 'silent for 1 s')
  assert host.asked == ['/a']
