"""What the site changes of the Markdown that the repository shows.

README.md becomes the first page, without its badges. A link to a file outside docs/
(code, configs, results) becomes plain text, since the site has only the docs.
"""

import pathlib
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).parents[1]
LINK = re.compile(r'(?<!!)\[((?:[^][]|\[[^][]*\])*)\]\(([^)#:]+)(#[^)]*)?\)')


def on_files(files: Files, config: MkDocsConfig) -> Files:
  readme = (ROOT / 'README.md').read_text()
  readme = re.sub(r'^\[!\[CI\].*\n', '', readme, flags=re.M)  # the line of badges
  files.append(
    File.generated(config, 'index.md', content=readme.replace('](docs/', ']('))
  )
  return files


def on_page_markdown(
  markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
  def plain(link: re.Match) -> str:
    target = (ROOT / 'docs' / link[2]).resolve()
    if page.file.src_uri == 'index.md' and not target.exists():
      target = (ROOT / link[2]).resolve()
    outside = target.exists() and ROOT / 'docs' not in (target, *target.parents)
    return link[1] if outside else link[0]

  return LINK.sub(plain, markdown)
