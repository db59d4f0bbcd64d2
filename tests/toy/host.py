"""A host of files on this machine that can fail as hosts do."""

import functools
import http.server
import pathlib
import socket
import threading


class Files(http.server.SimpleHTTPRequestHandler):
  """Serves files; `faults` says by path, or by '' for all, how it fails."""

  faults: dict[str, str]
  closing: threading.Event
  asked: list[str]

  def log_message(self, *_: object) -> None:
    pass

  def do_GET(self) -> None:
    self.asked.append(self.path)
    fault = self.faults.get(self.path, self.faults.get('', ''))
    if fault == 'silent':
      self.closing.wait()
    elif fault in ('cut', 'stalled'):
      self.send_response(200)
      self.send_header('Content-Length', '9999999')
      self.end_headers()
      self.wfile.write(b'too little')
      if fault == 'stalled':
        self.closing.wait()
    elif fault.startswith('/'):
      self.send_response(302)
      self.send_header('Location', fault)
      self.end_headers()
    elif fault:
      self.send_error(int(fault))
    else:
      super().do_GET()


class Host:
  """Serves the files of a folder until it is closed.

  Attributes:
    faults: how it fails, see Files.
    asked: the paths that it was asked for.
  """

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    self.faults: dict[str, str] = {}
    self.asked: list[str] = []
    self._closing = threading.Event()
    about = {'faults': self.faults, 'asked': self.asked, 'closing': self._closing}
    serve = functools.partial(type('Handler', (Files,), about), directory=folder)
    self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), serve)
    threading.Thread(target=self._server.serve_forever, daemon=True).start()

  def url(self, path: str) -> str:
    return f'http://127.0.0.1:{self._server.server_port}/{path}'

  def close(self) -> None:
    """From then on it refuses connections."""
    self._closing.set()
    self._server.shutdown()
    self._server.server_close()


def refusing_url() -> str:
  """An address on this machine where nobody listens."""
  with socket.create_server(('127.0.0.1', 0)) as server:
    return f'http://127.0.0.1:{server.getsockname()[1]}/x.tgz'
