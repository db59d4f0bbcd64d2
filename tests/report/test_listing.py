"""What the list of all results says of each, and what it shows of it."""

import pytest

from toy.results import changed, of_row, scored
from transformer_jax.data.corpus import NEWSTEST, Overlap
from transformer_jax.report import listing
from transformer_jax.report.results import ScoredRun


def row(run: ScoredRun) -> dict[str, str]:
  """Returns the cells of the only result by their columns."""
  _, table = listing.every_result([run])
  header, _, line = ([*map(str.strip, x.split('|'))][1:-1] for x in table.split('\n'))
  return dict(zip(header, line, strict=True))


def test_a_result_is_a_row():
  config = {'init_from.run': '/runs/parent', 'init_from.step': 1200, 'patience': 5}
  result = changed(of_row('D1'), config, step=3000, beam=1, alpha=1.0)
  assert row(scored(result, 'mine')) == {
    'run': 'mine (from parent, step 1,200; 3,000 of at most 3,125 updates)',
    'sacreBLEU': r'19.50 \[19.0, 20.0\]¹',
    'BLEU': r'20.00 \[19.5, 20.5\]¹',
    'chrF': r'19.50 \[19.0, 20.0\]¹',
    'dev PPL': '5.000',
    'scored on': 'val+test_2016_flickr',
    'step': '3,000',
    **{'averaged': '1', 'beam': '1', 'alpha': '1.0'},
    **{'parameters': '2.4 M', 'target tokens': '10.0 M', 'minutes': '720.0'},
  }
  whole = changed(of_row(), dev_perplexity=6001.0, chrf=None)
  cells = row(scored(changed(whole, {'train_steps': 4000}), 'x'))
  assert cells['run'] == 'x (3,125 of 4,000 updates)' and 'chrF' not in cells
  assert cells['dev PPL'] == r'\> 6,000: worse than guessing'
  assert row(scored(whole, 'x'))['run'] == 'x'


@pytest.mark.parametrize(
  ('config', 'fields', 'name'),
  [
    ({}, {}, 'val+test_2016_flickr'),
    ({}, {'split': 'test'}, 'test_2016_flickr'),
    ({'data.reader': 'embedded'}, {}, 'multi30k.en-de.mini dev'),
    ({'data.files': {'test': ['x']}}, {}, 'multi30k.en-de.mini dev'),
    ({'data.files.dev': ['a/b/newstest2013']}, {}, 'newstest2013'),
    ({'data.files.dev': ['sacrebleu:wmt13']}, {}, 'newstest2013'),
    (
      {'data.files.dev': ['newstest2013']},
      {'references': '0' * 64},
      'newstest2013, other references',
    ),
    *(({}, {'references': known + 'f' * 52}, name) for known, name in NEWSTEST.items()),
  ],
)
def test_the_text_that_was_scored_has_a_name(config: dict, fields: dict, name: str):
  assert scored(changed(of_row(), config, **fields)).test_set == name


def test_footnotes_say_what_can_be_compared():
  """A signature is spelt out once; an overlap is the fullest of equal results."""
  first, second = of_row(), changed(of_row('C1'), decode_dtype=None)
  overlap = {'train': Overlap(3, 2, 1), 'test': Overlap(4, 0, 0)}
  both = [scored(x) for x in (first, changed(first, overlap=overlap), second)]
  both.append(both[1]._replace(translations=['a'] * 10))
  other = scored(changed(first, text='tokenised', paper_bleu=first.scores['chrf']))
  notes = listing.footnotes([*both, other])
  start = 'val+test_2016_flickr, detokenised, corpus c0ffeec0ffee, 6,000 pieces'
  counts = '3 (30.0%) in train, 4 (40.0%) in test; of its references 2 (20.0%) in train'
  of_splits = f'Of its source sentences {counts}'
  assert notes[0].startswith(f'¹ {start}, decoded in float32. {of_splits}')
  names = {'sacreBLEU': 'sacrebleu', 'BLEU': 'paper_bleu', 'chrF': 'chrf'}
  signatures = '; '.join(f'{title}: nrefs:1|{x}' for title, x in names.items())
  assert notes[0].endswith(f'. {signatures}.')
  assert notes[1] == f'² {start}. Scored as ¹.'
  assert 'tokenised, ' in notes[2] and 'BLEU: nrefs:1|chrf' in notes[2]
  assert len(notes) == 3
  counts = 'source sentences 3 in train, 4 in test; of its references 2 in train, 0 in '
  counts += 'test; of its pairs 1 in train, 0 in test. '
  assert listing.overlap(both[1]) == f'Of its {counts}', (
    'no shares without translations'
  )


def test_a_run_is_represented_by_its_newest_step_as_its_config_decodes():
  usual, greedy = scored(of_row()), scored(changed(of_row(), beam=1))
  newest = scored(changed(of_row(), step=4000, beam=1))
  other = scored(changed(of_row(), split='test'))
  for runs in [greedy, usual], [usual, greedy]:
    assert listing.representatives([*runs, other]) == [usual, other]
  assert listing.representatives([usual, newest, usual]) == [newest]
