"""Prepares a config's corpus: vocabulary, token files, card.

python -m scripts.prepare_data --config=configs/base.py:en-de [--raw_dir=DIR]
python -m scripts.prepare_data --verify=data/wmt14.en-de
"""

from transformer_jax.data.corpus import Corpus
from transformer_jax.machine import cli
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import prepare
from transformer_jax.runs.flags import config_flag, data_flags
from transformer_jax.tasks import reader_of

FLAGS = cli.Flags(__doc__)
CONFIG = config_flag(FLAGS, 'Config whose corpus to prepare.', required=False)
VERIFY = FLAGS.path('verify', None, 'Prepared folder to check against its card.')
DATA = data_flags(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  if VERIFY.value is not None:
    FLAGS.refuse('--verify', CONFIG, *DATA)
    Corpus.open(VERIFY.value).verify()
    print(f'{VERIFY.value} is as its card says')
  elif CONFIG.value is not None:
    folders = (flag.value for flag in DATA)
    cli.say(prepare.ensure(CONFIG.value, reader_of(CONFIG.value), *folders))
  else:
    raise UserError('give --config, or --verify and a prepared folder')


if __name__ == '__main__':
  cli.run(main)
