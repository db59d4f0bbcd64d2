"""WMT14's own archives, read where they lie: nothing is unpacked to disk."""

import pathlib

from transformer_jax.data.archived import ArchivedBitext
from transformer_jax.data.languages import beside_english
from transformer_jax.data.lines import Bitext
from transformer_jax.data.tars import Published, Tar
from transformer_jax.machine.errors import UserError

# What WMT gives out: URL, bytes, sha256. From TensorFlow Datasets: translate/wmt.py and
# the url_checksums of wmt13, wmt14 and wmt19. The last one is from sacreBLEU, which has
# only its md5: dataset/__init__.py, wmt14/full.
_PUBLISHED = """
www.statmt.org/wmt13/training-parallel-europarl-v7.tgz 657632379
  0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7
www.statmt.org/wmt13/training-parallel-commoncrawl.tgz 918311367
  c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5
www.statmt.org/wmt13/training-parallel-un.tgz 2365634246
  29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47
www.statmt.org/wmt14/training-parallel-nc-v9.tgz 80418416
  cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485
www.statmt.org/wmt10/training-giga-fren.tar 2595102720
  3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a
data.statmt.org/wmt19/translation-task/dev.tgz 38654961
  7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7
www.statmt.org/wmt14/test-full.tgz ?
  a8cd784e006feb32ac6f3d9ec7eb389a
""".split()
ARCHIVES = {
  url.split('/')[-1]: Published(f'http://{url}', size, digest)
  for url, size, digest in zip(*(_PUBLISHED[i::3] for i in range(3)), strict=True)
}

# In the order of TensorFlow Datasets' translate/wmt14.py, names from its wmt.py.
_TRAIN = (
  ('training-parallel-europarl-v7.tgz', 'training/europarl-v7.{pair}.{language}'),
  ('training-parallel-commoncrawl.tgz', 'commoncrawl.{pair}.{language}'),
  ('training-parallel-un.tgz', 'un/undoc.2000.fr-en.{language}'),
  ('training-parallel-nc-v9.tgz', 'training/news-commentary-v9.{pair}.{language}'),
  ('training-giga-fren.tar', 'giga-fren.release2.fixed.{language}.gz'),
)
_DEV = ('dev.tgz', 'dev/newstest2013.{language}')
# newstest2014 in full, 3,003 segments: WMT14's own if it is there, else WMT19's.
_TESTS = (
  ('test-full.tgz', 'test-full/newstest2014-{other}en-{role}.{language}.sgm'),
  ('dev.tgz', 'dev/newstest2014-{other}en-{role}.{language}.sgm'),
)


def bitexts(
  raw_dir: pathlib.Path, source_language: str, target_language: str
) -> dict[str, list[Bitext]]:
  """WMT14's training corpora, newstest2013 as dev and newstest2014 as test.

  Raises:
    UserError: WMT14 does not have this pair of languages, or archives are missing; the
      message names all of them and where they are.
  """
  other = beside_english(source_language, target_language)
  if other is None:
    raise UserError(
      f'{source_language}-{target_language}: WMT14 is read as en with de or fr'
    )
  plan = {
    'train': [row for row in _TRAIN if other == 'fr' or 'fr' not in row[1]],
    'dev': [_DEV],
    'test': [next((t for t in _TESTS if (raw_dir / t[0]).is_file()), _TESTS[-1])],
  }
  archives = {
    name: Tar(raw_dir / name, ARCHIVES[name])
    for rows in plan.values()
    for name, _ in rows
  }
  missing = [name for name, archive in archives.items() if not archive.path.is_file()]
  if missing:
    raise UserError(
      f'{raw_dir} lacks archives of WMT14: '
      + ', '.join(f'{name} (get it from {ARCHIVES[name].url})' for name in missing)
    )

  def bitext(name: str, pattern: str) -> ArchivedBitext:
    words = {'pair': f'{other}-en', 'other': other}
    return ArchivedBitext(
      archives[name],
      pattern.format(role='src', language=source_language, **words),
      pattern.format(role='ref', language=target_language, **words),
    )

  return {split: [bitext(*row) for row in rows] for split, rows in plan.items()}
