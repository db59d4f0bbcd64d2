"""The JavaScript of a page, run by Node, and the page itself in headless Chromium."""

import base64
import contextlib
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

TRANSLATE = """
const {model, lines, off} = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const loaded = load(model), {beam, alpha} = loaded;
console.log(JSON.stringify(lines.map(line => {
  const search = translate(loaded, line, {off, beam, alpha});
  let step;
  do step = search.next(); while (!step.done);
  const {steps, end, ...output} = step.value;
  return output;
})));
"""


def scripts(page: pathlib.Path) -> dict[str, str]:
  """Returns the content of a page's <script> elements that have an id."""
  found = re.findall(r'<script[^>]* id="(\w+)">(.*?)</script>', page.read_text(), re.S)
  return dict(found)


def translate(
  page: pathlib.Path, lines: Sequence[str], off: Sequence[str] = ()
) -> list[dict[str, Any]]:
  """Returns what the model of a page makes of each line, by Node."""
  if not shutil.which('node'):
    pytest.skip('Node is not installed')
  content = scripts(page)
  done = subprocess.run(
    ['node', '-e', content['transformer'] + TRANSLATE],
    input=json.dumps({'model': content['model'], 'lines': [*lines], 'off': [*off]}),
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  outputs, sizes = json.loads(done.stdout), json.loads(content['model'])['sizes']
  for output in outputs:
    T, S = len(output['target']), len(output['source'])
    shapes = {'encoder': (S, S), 'decoder': (T, T), 'cross': (T, S)}
    for kind, shape in shapes.items():
      weights = np.array(output['weights'][kind], np.float32)
      output['weights'][kind] = weights.reshape(sizes['N'], sizes['h'], *shape)
  return outputs


FLAGS = (
  '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run '
  '--disable-background-networking --disable-component-update --disable-sync '
  '--remote-debugging-pipe'
).split()


class Tab:
  """A tab, by the DevTools protocol over two pipes."""

  def __init__(self, reader: io.BufferedReader, writer: io.BufferedWriter):
    self._reader, self._writer = reader, writer
    self._numbers, self._session, self._rest = itertools.count(1), None, b''
    target = self.send('Target.createTarget', url='about:blank')['targetId']
    attach = {'targetId': target, 'flatten': True}
    self._session = self.send('Target.attachToTarget', **attach)['sessionId']

  def send(self, method: str, **params: Any) -> dict[str, Any]:
    """Returns the result of a method; events are dropped."""
    message = {'id': next(self._numbers), 'method': method, 'params': params}
    if self._session:
      message['sessionId'] = self._session
    self._writer.write(json.dumps(message).encode() + b'\0')
    self._writer.flush()
    while True:
      answer = json.loads(self._receive())
      if answer.get('id') == message['id']:
        assert 'error' not in answer, answer
        return answer['result']

  def _receive(self) -> bytes:
    while b'\0' not in self._rest:
      block = self._reader.read1(1 << 20)
      assert block, 'Chromium ended'
      self._rest += block
    message, _, self._rest = self._rest.partition(b'\0')
    return message

  def evaluate(self, expression: str) -> Any:
    """Returns the value of an expression of JavaScript."""
    how = {'returnByValue': True, 'userGesture': True}
    result = self.send('Runtime.evaluate', expression=expression, **how)
    assert 'exceptionDetails' not in result, result['exceptionDetails']
    return result['result'].get('value')

  def click(self, selector: str) -> None:
    """Clicks with the mouse in the middle of an element."""
    box = f'document.querySelector("{selector}")'
    self.evaluate(f'{box}.scrollIntoView({{block: "center"}})')
    find = '[r.x + r.width / 2, r.y + r.height / 2]'
    x, y = self.evaluate(f'(r => {find})({box}.getBoundingClientRect())')
    for kind in ('mousePressed', 'mouseReleased'):
      mouse = {'type': kind, 'x': x, 'y': y, 'button': 'left', 'clickCount': 1}
      self.send('Input.dispatchMouseEvent', **mouse)

  def wait_for(self, expression: str, seconds: float = 60) -> Any:
    """Returns the first value of an expression that is true."""
    end = time.monotonic() + seconds
    while not (value := self.evaluate(expression)):
      assert time.monotonic() < end, expression
      time.sleep(0.05)
    return value

  def open(self, path: pathlib.Path, anchor: str = '') -> None:
    self.send('Page.navigate', url='about:blank')
    self.send('Page.navigate', url=f'{path.as_uri()}{anchor}')
    self.wait_for('document.readyState === "complete" && location.protocol === "file:"')

  def screenshot(self, path: pathlib.Path, width: int, scheme: str) -> None:
    """Writes a PNG of the whole page; `scheme` is 'light' or 'dark'."""
    feature = {'name': 'prefers-color-scheme', 'value': scheme}
    self.send('Emulation.setEmulatedMedia', features=[feature])
    size = {'width': width, 'height': 900, 'deviceScaleFactor': 1, 'mobile': False}
    self.send('Emulation.setDeviceMetricsOverride', **size)
    shot = self.send('Page.captureScreenshot', captureBeyondViewport=True)
    path.write_bytes(base64.b64decode(shot['data']))


@contextlib.contextmanager
def open_tab(folder: pathlib.Path) -> Iterator[Tab]:
  """Yields a tab of a new Chromium, whose files are in `folder`."""
  program = shutil.which('chromium') or shutil.which('chromium-browser')
  if program is None:
    pytest.skip('Chromium is not installed')
  theirs, our_writer = os.pipe()
  our_reader, their_writer = os.pipe()
  command = f'exec "$@" 3<&{theirs} 4>&{their_writer}'
  flags = *FLAGS, f'--user-data-dir={folder / "chromium"}'
  browser = subprocess.Popen(
    ['bash', '-c', command, 'chromium', program, *flags],
    pass_fds=(theirs, their_writer),
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  for descriptor in (theirs, their_writer):
    os.close(descriptor)
  with os.fdopen(our_reader, 'rb') as reader, os.fdopen(our_writer, 'wb') as writer:
    try:
      yield Tab(reader, writer)
    finally:
      browser.kill()
      browser.wait()
