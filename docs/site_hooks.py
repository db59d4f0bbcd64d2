"""What the site changes of the Markdown that the repository shows.

README.md becomes the first page, without its badges, and the notebook a page with its
outputs. A link to a file outside docs/ (code, configs, results) becomes plain text,
since the site has only the docs. The picture of the page that translates links to it.
"""

import json
import pathlib
import re
from collections.abc import Iterator

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).parents[1]
LINK = re.compile(r'(?<!!)\[((?:[^][]|\[[^][]*\])*)\]\(([^)#:]+)(#[^)]*)?\)')
PICTURE = re.compile(r'!\[[^]]*\]\(translate\.png\)')
EQUATION = re.compile(r'\$\$(.+?)\$\$', re.S)


def notebook(path: pathlib.Path) -> Iterator[str]:
  """Yields a notebook's cells as Markdown, each with its outputs."""
  for cell in json.loads(path.read_text())['cells']:
    source = ''.join(cell['source'])
    text = EQUATION.sub(lambda x: f'\n\n{convert(x[1], display="block")}\n\n', source)
    yield text if cell['cell_type'] == 'markdown' else f'```python\n{source}\n```'
    for output in cell.get('outputs', ()):
      data = output.get('data', {'text/plain': output.get('text')})
      if 'image/png' in data:
        yield f'![output](data:image/png;base64,{"".join(data["image/png"]).strip()})'
      elif 'text/markdown' in data:
        yield ''.join(data['text/markdown'])
      else:
        yield f'```text\n{"".join(data["text/plain"])}\n```'


def on_files(files: Files, config: MkDocsConfig) -> Files:
  readme = (ROOT / 'README.md').read_text()
  readme = re.sub(r'^\[!\[CI\].*\n', '', readme, flags=re.M)  # the line of badges
  files.append(
    File.generated(config, 'index.md', content=readme.replace('](docs/', ']('))
  )
  for path in (ROOT / 'docs').glob('*.ipynb'):
    text = '\n\n'.join(notebook(path))
    files.append(File.generated(config, f'{path.stem}.md', content=text))
  return files


def on_page_markdown(
  markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
  def plain(link: re.Match[str]) -> str:
    target = (ROOT / 'docs' / link[2]).resolve()
    if page.file.src_uri == 'index.md' and not target.exists():
      target = (ROOT / link[2]).resolve()
    outside = target.exists() and ROOT / 'docs' not in (target, *target.parents)
    return link[1] if outside else link[0].replace('.ipynb', '.md')

  live = '../' * page.url.count('/') + 'translate.html'  # `make docs` exports it
  return PICTURE.sub(rf'<a href="{live}">\g<0></a>', LINK.sub(plain, markdown))
