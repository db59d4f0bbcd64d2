"""From a folder of Hugging Face's Marian to a run."""

import json
import pathlib
from collections.abc import Iterator

import jax
import ml_collections

from transformer_jax.data import card, preparing, vocabulary
from transformer_jax.data.corpus import folder_of, name_apart
from transformer_jax.data.task import Task
from transformer_jax.exchange import folders, incoming, marian
from transformer_jax.exchange.huggingface import WEIGHTS
from transformer_jax.machine import files, platform
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build, flops
from transformer_jax.runs import config_checks
from transformer_jax.training import checkpoint, trainer

STEP = 1  # of the checkpoint: a name has to be 1 or more


def import_model(
  folder: pathlib.Path,
  workdir: pathlib.Path,
  config: ml_collections.ConfigDict,
  task: Task,
  data: tuple[pathlib.Path, pathlib.Path | None, pathlib.Path | None],
  prepare: bool,
) -> Iterator[str]:
  """Makes a run from a model in `folder`, and yields lines that tell the user about it.

  Args:
    config: becomes the run's config; its keys on model and checkpoints are replaced.
    data: the folders data_dir, raw_dir and tfds_data_dir of preparing.prepare().
    prepare: encode the config's corpus with the model's vocabulary, if it is not yet.
      Then the model can be scored on it.

  Raises:
    UserError: `folder` holds no model that can be imported, or `workdir` exists.
  """
  plain = config.copy_and_resolve_references()
  config.update({'row': None, 'train_steps': STEP, 'average_last': 1})
  config.checkpoint_every_steps = STEP
  config_checks.check_numbers(config.to_dict())
  model = incoming.read(folder)
  config.model.update(model.model)
  try:
    config_checks.check_numbers(config.to_dict())
  except UserError as error:
    raise UserError(f'{folder} has a model that no run can have: {error}') from error
  platform.start(config.slices)
  _, shapes = build.architecture(config)
  params = marian.from_marian(model.arrays, shapes)
  with folders.written(workdir) as run:
    names = (vocabulary.SHARED, vocabulary.TARGETS)[: len({*model.spm})]
    for name, spm in zip(names, model.spm, strict=False):
      (run / name).write_bytes(spm)
    words = vocabulary.read(run, len(names) > 1)
    corpus = _corpus(
      config, plain, words, data[0], run, (task, *data) if prepare else None
    )
    made = card.read_card(corpus) if corpus else _card(run, names, words)
    about = {'folder': folder.name, 'sha256': files.sha256(folder / WEIGHTS)}
    files.write_json(run / card.CARD, made | {'imported': about})
    files.write_json(run / 'config.json', json.loads(config.to_json_best_effort()))
    optimizer = jax.jit(trainer.adam(config).init)(params)
    checkpoint.save(run / 'checkpoints', STEP, params, optimizer)
  yield from model.notes
  yield f'{workdir}: {flops.parameters(config.model):,} parameters of {folder}'
  yield f'corpus: {corpus or "none; with --prepare it can be scored"}'


def _corpus(
  config: ml_collections.ConfigDict,
  plain: ml_collections.ConfigDict,
  words: vocabulary.Vocabularies,
  data_dir: pathlib.Path,
  run: pathlib.Path,
  data: tuple | None,
) -> pathlib.Path | None:
  """The prepared corpus that has this vocabulary; it is made if `data` are given."""
  there = folder_of(config.data.name, data_dir)
  if (there / card.CARD).is_file() and _sums(card.vocabularies(there)) == _sums(words):
    return there
  config.init_from.vocabulary = _sums(words)
  name_apart(config, plain, ())
  there = folder_of(config.data.name, data_dir)
  if data is None:
    return there if (there / card.CARD).is_file() else None
  encoding = config.copy_and_resolve_references()
  encoding.init_from.run = str(run)
  return preparing.prepare(encoding, *data)


def _sums(words: vocabulary.Vocabularies) -> str:
  return ' '.join(dict.fromkeys(side.sha256 for side in words))


def _card(
  run: pathlib.Path, names: tuple[str, ...], words: vocabulary.Vocabularies
) -> dict:
  """The card of a run without a corpus."""
  sums = {name: files.sha256(run / name) for name in names}
  about = {'sha256': words.source.sha256, 'pieces': len(words.source)}
  return {'vocabulary': about, 'splits': {}, 'sha256': sums}
