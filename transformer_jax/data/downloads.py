"""Probes the hosts of a download, which would wait for minutes if one is dead."""

import re
import threading
import urllib.parse
from collections.abc import Mapping, Sequence

import requests

LIMIT = 10  # seconds for an answer
STALLED = 60  # seconds without a byte after which a download is given up


def unanswered(urls: Sequence[str]) -> dict[str, str]:
  """The addresses from which nothing can be had within LIMIT seconds, and why not.

  They are asked one after another, because WMT's host refuses several at a time. Once
  a host is silent, the rest of its addresses are not asked.
  """
  dead: dict[str, str] = {}
  silent: dict[str, str] = {}  # hosts, and why
  for url in dict.fromkeys(urls):
    host = urllib.parse.urlsplit(url).netloc
    if host not in silent:
      fault, answered = _asked(url)
      if not answered:
        silent[host] = fault
    if host in silent or fault:
      dead[url] = silent.get(host, fault)
  return dead


def describe(dead: Mapping[str, str]) -> str:
  """What unanswered() found, in words."""
  return 'no answer from ' + ', '.join(f'{url} ({why})' for url, why in dead.items())


def _asked(url: str) -> tuple[str, bool]:
  """What is wrong with an address, '' if nothing; and whether its host has answered."""
  found = [(f'silent for {LIMIT} s', False)]
  # The timeout of requests limits neither a DNS look-up nor an answer that trickles in.
  asking = threading.Thread(target=lambda: found.append(_ask(url)), daemon=True)
  asking.start()
  asking.join(LIMIT)
  return found[-1]


def _ask(url: str) -> tuple[str, bool]:
  """Asks as _asked() does, with no limit on the total time. Follows redirections."""
  first_byte = {'Range': 'bytes=0-0'}
  try:
    with requests.get(url, headers=first_byte, stream=True, timeout=LIMIT) as answer:
      if not answer.ok:
        return f'{answer.status_code} {answer.reason}', True
      next(answer.iter_content(1), b'')
      return '', True
  except requests.Timeout:
    return f'silent for {LIMIT} s', False
  except requests.RequestException as error:
    return re.sub(r'[\'"]\)*$', '', str(error).rpartition(': ')[2]), False
