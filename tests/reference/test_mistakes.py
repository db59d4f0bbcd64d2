"""check_mine names each mistake that another hand plants, and no other."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Collection

import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as safetensors

from scripts import check_mine
from toy import independent
from transformer_jax.machine.errors import UserError
from transformer_jax.reference import check, kit, mistakes, torch_names

Arrays = dict[str, np.ndarray]
MISTAKES = mistakes.read()


def planted_parameters() -> Arrays:
  """Returns the kit's parameters in float64, and those of models with mistakes."""
  params = {name: x.astype(np.float64) for name, x in kit.read('parameters').items()}
  for layer in ('encoder.0', 'encoder.1', 'decoder.0', 'decoder.1'):
    for attention in ('attention', 'cross'):
      params |= {f'{layer}.{attention}.b_{x}': np.zeros((4, 8)) for x in 'QKV'}
      params[f'{layer}.{attention}.b_O'] = np.zeros(32)
  for norm in ('encoder_norm', 'decoder_norm'):
    params |= {f'{norm}.scale': np.ones(32), f'{norm}.bias': np.zeros(32)}
  return params | dict.fromkeys(('softmax', 'source_embedding'), params['embedding'])


def forward(*wrong: str) -> Arrays:
  """Returns the arrays of a forward pass with mistakes, in float32."""
  ids = kit.read('inputs')
  model = independent.Transformer(planted_parameters(), wrong)
  model(ids['source'], ids['target'])
  arrays = {name: np.asarray(x, np.float32) for name, x in model.arrays.items()}
  return {name: arrays[name] for name in check.right_arrays() if name in arrays}


def named(lines: Collection[str]) -> list[str]:
  """Returns the mistakes that a report names, in the order of mistakes.txt."""
  starts = 'mistake', 'at least', 'or:', '2'
  said = [line for line in lines if line.startswith(starts)]
  return [name for name, x in MISTAKES.items() if any(x.says in line for line in said)]


def of(*groups: str) -> list[str]:
  """Returns the mistakes whose first effect is on one of these groups of arrays."""
  order = ['forward', 'learning_rate', 'gradient', 'update', kit.SEARCHES[0]]
  first = lambda x: next(group for group in order if x.affects(group))
  return [name for name, x in MISTAKES.items() if first(x) in groups]


@pytest.mark.slow
def test_the_kit_is_written_again(tmp_path: pathlib.Path, monkeypatch):
  """By one_file.py; gradients and updates are stored in float32."""
  stored = [*kit.FOLDER.iterdir()]
  shutil.copy(kit.FOLDER / 'bleu.json', tmp_path)
  monkeypatch.setattr(kit, 'FOLDER', tmp_path)
  kit.write()
  rounded = lambda text: json.loads(text, parse_float=lambda x: round(float(x), 6))
  for path in stored:
    ours = tmp_path / path.name
    if path.suffix == '.json':
      assert rounded(ours.read_text()) == rounded(path.read_text()), path
      continue
    arrays, known = map(safetensors.load_file, (ours, path))
    assert arrays.keys() == known.keys()
    limits = (1e-6, 1e-7) if path.stem == 'backward' else (1e-12, 1e-12)
    for name, x in arrays.items():
      assert x.dtype == known[name].dtype
      np.testing.assert_allclose(x, known[name], *limits, err_msg=name)


def test_no_alarm_for_a_right_model(tmp_path: pathlib.Path, capsys):
  """Differences on padding do not count."""
  path = tmp_path / 'mine.safetensors'
  arrays = forward()
  arrays['encoder.1.norm_3'][1, -1] = 7
  arrays['decoder.0.attention.scores'][0, :, 0, 1:] = -1e9
  assert len(arrays) == 52 and {x.dtype for x in arrays.values()} == {np.dtype('f4')}
  safetensors.save_file(arrays, path)
  check_mine.main(['check_mine', str(path)])
  assert capsys.readouterr().out.startswith('equal: 52 of 52 arrays')


def test_mistakes_of_the_forward_pass_are_named():
  assert len({x.says for x in MISTAKES.values()}) == len(MISTAKES)
  readme = pathlib.Path(__file__).parents[2] / 'README.md'
  assert f'recognises {len(MISTAKES)} mistakes' in ' '.join(readme.read_text().split())
  for name in of('forward'):
    assert named([*check.report(forward(name))]) == [name]


def test_learning_rates():
  rates = lambda *wrong: np.float32(
    [independent.rate(step, 512, 4000, wrong) for step in range(1, 10_001)]
  )
  assert len([*check.report({'learning_rate': rates()})]) == 1
  wrong = {name: rates(name) for name in of('learning_rate')}
  wrong = {name: x for name, x in wrong.items() if (x != rates()).any()}
  assert len(wrong) == 5
  for name, x in wrong.items():
    assert named([*check.report({'learning_rate': x})]) == [name]


@pytest.mark.slow
def test_pairs():
  pair = ['unscaled_embedding', 'unscaled_scores']
  lines = [*check.report(forward(*pair))]
  assert named(lines) == pair
  assert any(line.startswith('2 mistakes') for line in lines)


def test_a_known_mistake_before_an_unknown_one():
  """Lines of the program, right and wrong, stand below it."""
  arrays = forward('gelu')
  arrays['logits'] = arrays['logits'] + 1
  _, _, start, right, yours, last = check.report(arrays)
  assert start.startswith('at least 2') and named([start]) == ['gelu']
  assert '(section 3.3)' in start and 'gelu' in yours and 'gelu' not in right
  assert last == 'with that the first difference is logits'


def test_an_unknown_mistake():
  arrays = forward()
  first = 'encoder.0.norm_3'
  arrays[first] = arrays[first] * 1.01
  _, difference, line, last = check.report(arrays)
  assert difference.startswith(f'first difference: {first}, by 1.0e-02')
  assert line.startswith('no known mistake')
  assert last.startswith(f'loss.plain is equal: {first} may be another')


def test_transposes_are_named():
  """Of a square matrix, or of one whose axes are merged."""
  for name, transpose in {
    'encoder.0.attention.scores': lambda x: x.swapaxes(-1, -2),
    'gradient.encoder.0.attention.W_O': lambda x: x.reshape(32, 32).T.reshape(x.shape),
  }.items():
    _, last = check.report({name: transpose(check.right_arrays()[name])})
    assert last == f'{name} is transposed'


def test_dropout_is_recognised():
  x = check.right_arrays()['encoder.input']
  keep = np.random.default_rng(0).random(x.shape) > 0.1
  *_, last = check.report({'encoder.input': x * keep / 0.9})
  assert 'dropout is on, with a rate of 0.10' in last


def test_bleu():
  right, wrong = (kit.read_json('bleu')[key] for key in ('right', 'wrong'))
  report = lambda x: [*check.report({'bleu.sacrebleu': np.array(round(x, 2))})]
  assert len(report(right['bleu.sacrebleu'])) == 1
  assert 'bleu.paper_bleu' in report(right['bleu.paper_bleu'])[1]
  for says, x in wrong.items():
    assert says in report(x)[1]
  assert report(1.0)[-1] == 'no known mistake explains it'


def test_where_it_differs():
  arrays = forward()
  weights = arrays['encoder.0.attention.weights']
  weights[:, 2] += 0.1
  weights[0, 2, 1, 3] = 0.75
  line = [*check.report(arrays)][1]
  assert ', most at [0, 2, 1, 3]: 0.75 for 0.' in line and '; only head 2' in line
  lines = [*check.report(forward('no_mask_of_padding'))]
  assert '; only where the source has padding' in lines[1]
  # Masked scores may be -inf, and are not compared.
  scores = forward('unscaled_scores')['decoder.0.attention.scores']
  scores[..., ~np.tri(scores.shape[-1], dtype=bool)] = -np.inf
  line = [*check.report({'decoder.0.attention.scores': scores})][0]
  assert 'most at [' in line and 'inf' not in line and 'padding' not in line


def test_arrays_may_have_the_names_of_pytorch_or_merged_axes(tmp_path: pathlib.Path):
  right = check.right_arrays()
  names = [name for name in right if name.startswith('gradient.')]
  arrays = torch_names.to_torch({name[9:]: right[name] for name in names})
  arrays |= dict.fromkeys(('encoder.norm.weight', 'decoder.norm.bias'), np.ones(32))
  arrays = {f'gradient.{name}': x for name, x in arrays.items()}
  heads = [name for name in right if name.endswith('.heads')]
  arrays |= {name: right[name].reshape(*right[name].shape[:2], -1) for name in heads}
  safetensors.save_file(arrays, tmp_path / 'mine.safetensors')
  read = check.read_arrays(tmp_path / 'mine.safetensors')
  assert [*read] == [name for name in right if name in {*names, *heads}]
  for name, x in read.items():
    np.testing.assert_array_equal(x, right[name], err_msg=name)


@pytest.mark.parametrize(
  'arrays, message',
  [
    ({'gradient.embeding': np.zeros((60, 32))}, 'the nearest: gradient.embedding'),
    (
      {'gradient.embedding': np.zeros((32, 60))},
      r'transposed: .*, in the kit \[60, 32',
    ),
    ({'logits': np.zeros((3, 7, 60), np.float16)}, 'is float16: compute in float32'),
    ({'encoder.input': np.full((3, 6, 32), np.nan)}, r'NaN, first at \[0, 0, 0\]'),
    ({}, 'has no array of the kit, such as logits'),
  ],
)
def test_wrong_input_gets_a_line(arrays: Arrays, message: str, tmp_path: pathlib.Path):
  path = tmp_path / 'mine.npz'
  np.savez(path, **arrays)
  with pytest.raises(UserError, match=message) as error:
    check_mine.main(['check_mine', str(path)])
  assert '\n' not in str(error.value) and str(path) in str(error.value)


def test_a_damaged_file_gets_a_line(tmp_path: pathlib.Path):
  np.savez(tmp_path / 'mine.npz', **forward())
  whole = (tmp_path / 'mine.npz').read_bytes()
  flipped = whole[:900] + bytes([whole[900] ^ 1]) + whole[901:]
  coarse = safetensors.save({'logits': np.zeros((3, 7, 60), ml_dtypes.bfloat16)})
  for name, content in [
    ('mine.pt', b'text'),
    *(('mine.npz', content) for content in (b'text', b'', whole[:-9], flipped)),
    *(('mine.safetensors', content) for content in (b'text', b'', coarse)),
  ]:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
      check_mine.main(['check_mine', str(tmp_path / name)])


# 6.1


def translations(beam: int, alpha: float, *wrong: str) -> Arrays:
  sentences = [[int(x) for x in row if x] for row in kit.read('inputs')['sentences']]
  params = planted_parameters()
  best = [independent.search(params, x, beam, alpha, wrong) for x in sentences]
  tokens = [row + [0] * (18 - len(row)) for row, _ in best]
  group = f'search.beam_{beam}.alpha_{alpha}'
  scores = np.array([score for _, score in best])
  return {f'{group}.tokens': np.array(tokens), f'{group}.scores': scores}


@pytest.mark.slow
def test_mistakes_of_the_search_are_named():
  for group in kit.SEARCHES:
    beam, alpha = group.removeprefix('search.beam_').split('.alpha_')
    assert len([*check.report(translations(int(beam), float(alpha)))]) == 1
  for name in of(kit.SEARCHES[0]):
    arrays = translations(4, 0.6, name) | translations(4, 1.0, name)
    assert named([*check.report(arrays)]) == [name]


# With gradients, by PyTorch


def trained(*wrong: str, dtype: str = 'float64') -> Arrays:
  """Returns all arrays of PyTorch's model with mistakes."""
  torch = pytest.importorskip('torch')
  params = {
    name: torch.tensor(x, dtype=getattr(torch, dtype), requires_grad=True)
    for name, x in planted_parameters().items()
  }
  ids = {name: torch.tensor(x) for name, x in kit.read('inputs').items()}
  model = independent.Transformer(params, wrong, torch)
  beta_2 = 0.999 if 'beta_2_0.999' in wrong else 0.98
  epsilon = 1e-8 if 'adam_epsilon_1e-8' in wrong else 1e-9
  settings = {'betas': (0.9, beta_2), 'eps': epsilon}
  kind = torch.optim.Adam
  if 'weight_decay' in wrong:
    kind, settings['weight_decay'] = torch.optim.AdamW, 0.01
  optimizer = kind([*params.values()], **settings)
  numpy, arrays = lambda x: x.detach().numpy().copy(), {}
  for number in range(1, 11):
    optimizer.zero_grad()
    model(ids['source'], ids['target']).backward()
    if number == 1:
      arrays |= {name: numpy(x) for name, x in model.arrays.items()}
      known = kit.read('parameters').keys()
      arrays |= {f'gradient.{name}': numpy(params[name].grad) for name in known}
    rate = independent.rate(number, 32, 4, wrong)
    if 'no_bias_correction' in wrong:  # which PyTorch has
      rate *= (1 - 0.9**number) / (1 - beta_2**number) ** 0.5
      optimizer.param_groups[0]['eps'] = epsilon / (1 - beta_2**number) ** 0.5
    optimizer.param_groups[0]['lr'] = rate
    optimizer.step()
    if number in (1, 2, 10):
      arrays |= {f'update_{number}.{name}': numpy(params[name]) for name in known}
  return {name: arrays[name] for name in check.right_arrays() if name in arrays}


@pytest.mark.torch
@pytest.mark.parametrize('dtype', ['float32', 'float64'])
def test_no_alarm_for_a_right_model_that_is_trained(dtype: str):
  arrays = trained(dtype=dtype)
  assert len(arrays) == 52 + 4 * 61
  assert len([*check.report(arrays)]) == 1


@pytest.mark.torch
def test_mistakes_of_gradients_and_updates_are_named():
  for name in [*of('gradient', 'update'), *of('learning_rate')]:
    assert named([*check.report(trained(name))]) == [name]


@pytest.mark.torch
def test_example_of_the_page(tmp_path: pathlib.Path):
  """The program of docs/check_yours.md is right, and its mistake is named."""
  pytest.importorskip('torch')
  page = (kit.FOLDER.parent / 'docs/check_yours.md').read_text()
  program = re.findall('```python\n(.*?)```', page, re.DOTALL)[-1]
  (tmp_path / 'reference').symlink_to(kit.FOLDER)
  reports = []
  for text in program, program.replace('source == PAD', 'source != PAD'):
    subprocess.run([sys.executable, '-c', text], cwd=tmp_path, check=True)
    mine = check.read_arrays(tmp_path / 'mine.safetensors')
    reports.append([*check.report(mine)])
  (right,), wrong = reports
  assert right.startswith('equal: 64 of 64 arrays')
  assert named(wrong) == ['padding_mask_inverted_in_pytorch']
