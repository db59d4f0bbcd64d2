"""Hugging Face transformers' Marian in PyTorch, untrained, with a config's sizes.

It has PyTorch's fused attention and fused Adam. It runs eagerly, or model and loss are
compiled by torch.compile. Dropout of attention weights is off, as in the paper's
translation models. It still differs from ours in that attention has biases, and that a
batch is never split into slices.
"""

import warnings
from collections.abc import Sequence

import ml_collections
import numpy as np
import torch
import transformers

from transformer_jax.data import batches
from transformer_jax.data.vocabulary import BOS, EOS, PAD, UNK
from transformer_jax.machine.devices import pad_ids
from transformer_jax.machine.errors import UserError

LONGEST = 1024  # positions of its table
IGNORED = -100  # a label without a loss


def marian(
  config: ml_collections.ConfigDict, device: str
) -> transformers.MarianMTModel:
  """Returns the model, on 'cpu' or 'cuda'.

  Raises:
    UserError: this PyTorch has no such device.
  """
  if device == 'cuda':
    if not torch.cuda.is_available():
      raise UserError(f'PyTorch {torch.__version__} sees no GPU')
    torch.set_float32_matmul_precision('high')  # TF32, as JAX's default is
  model = config.model
  torch.manual_seed(config.seed)
  sizes = {}
  for stack in ('encoder', 'decoder'):
    sizes[f'{stack}_layers'] = model.N
    sizes[f'{stack}_attention_heads'] = model.h
    sizes[f'{stack}_ffn_dim'] = model.d_ff
  untrained = transformers.MarianMTModel(
    transformers.MarianConfig(
      **sizes,
      vocab_size=model.vocab_size,
      d_model=model.d_model,
      max_position_embeddings=LONGEST,
      activation_function='relu',
      scale_embedding=True,
      dropout=model.P_drop,
      attention_dropout=0.0,
      activation_dropout=0.0,
      pad_token_id=PAD,
      bos_token_id=BOS,
      eos_token_id=EOS,
      unk_token_id=UNK,
      decoder_start_token_id=BOS,
      forced_eos_token_id=None,
      attn_implementation='sdpa',
    )
  )
  return untrained.to(device)


class Training:
  """Updates by Adam on label-smoothed cross-entropy."""

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    threads: int,
    half: bool,
    device: str,
    form: str,
  ):
    """Makes the model. `half`: in bfloat16, by autocast. `form`: '' or 'compiled'."""
    torch.set_num_threads(threads)
    self._model = marian(config, device).train(True)
    self._half, self._epsilon = half, config.epsilon_ls
    self._adam = torch.optim.Adam(
      self._model.parameters(),
      lr=1e-4,
      betas=(config.adam_b1, config.adam_b2),
      eps=config.adam_epsilon,
      fused=True,
    )
    self._loss = torch.zeros(())
    if form == 'compiled':
      # A program for each shape of batch; beyond 8 PyTorch would run eagerly.
      torch._dynamo.config.recompile_limit = 64
      self._loss_of = torch.compile(self._loss_of, dynamic=False)

  def step(self, batch: batches.Batch) -> None:
    device = self._model.device
    rows = lambda ids: ids.reshape(-1, ids.shape[-1]).astype(np.int64)
    ids = torch.from_numpy(rows(batch.source)).to(device)
    labels = torch.from_numpy(rows(batch.target)).to(device)
    shifted = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=BOS)
    self._loss = self._loss_of(ids, labels, shifted)
    self._loss.backward()
    self._adam.step()
    self._adam.zero_grad()

  def _loss_of(
    self, ids: torch.Tensor, labels: torch.Tensor, shifted: torch.Tensor
  ) -> torch.Tensor:
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=self._half):
      logits = self._model(
        input_ids=ids,
        attention_mask=ids != PAD,
        decoder_input_ids=shifted,
        use_cache=False,
      ).logits
    return torch.nn.functional.cross_entropy(
      logits.flatten(0, 1).float(),
      labels.masked_fill(labels == PAD, IGNORED).flatten(),
      ignore_index=IGNORED,
      label_smoothing=self._epsilon,
    )

  def wait(self) -> float:
    if self._model.device.type == 'cuda':
      torch.cuda.synchronize()
    return self._loss.item()


def without_eos(model: transformers.MarianMTModel) -> transformers.MarianMTModel:
  """Makes the end of a sentence never win, as decoding.without_eos does with ours."""
  with torch.no_grad():
    embedding = model.get_input_embeddings().weight
    embedding[:, 0], embedding[EOS] = 0.0, 0.0
    embedding[EOS, 0] = -1.0
    norm = model.get_decoder().layers[-1].final_layer_norm
    norm.bias[0] = 2 * model.config.d_model**0.5
  return model


def decoding(
  config: ml_collections.ConfigDict, threads: int, device: str
) -> dict[str, 'Decoding']:
  """Returns a Decoding for each dtype: bfloat16, on a CPU float32 too."""
  torch.set_num_threads(threads)
  kinds = ['bfloat16'] if device == 'cuda' else ['float32', 'bfloat16']
  of = lambda kind: Decoding(config, getattr(torch, kind), device)
  return {f'huggingface.{kind}': of(kind) for kind in kinds}


class Decoding:
  """`generate` with its cache; the parameters have `dtype`."""

  def __init__(
    self, config: ml_collections.ConfigDict, dtype: torch.dtype, device: str
  ):
    self._model = without_eos(marian(config, device)).train(False).to(dtype)
    self._alpha = config.alpha

  def translate(
    self, sources: Sequence[Sequence[int]], beam: int, length: int
  ) -> list[list[int]]:
    padded = pad_ids(sources, len(sources), max(map(len, sources)))
    ids = torch.from_numpy(padded.astype(np.int64)).to(self._model.device)
    with torch.inference_mode(), warnings.catch_warnings():
      warnings.simplefilter('ignore')  # deprecations within transformers
      ids = self._model.generate(
        input_ids=ids,
        attention_mask=ids != PAD,
        num_beams=beam,
        do_sample=False,
        length_penalty=self._alpha if beam > 1 else None,
        max_new_tokens=length,
      )
    return ids[:, 1:].tolist()  # without BOS
