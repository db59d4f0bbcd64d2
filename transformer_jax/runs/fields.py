"""Dataclasses from JSON: what of an object is missing, or of another type."""

import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

LARGEST = 2**63  # JSON's integers know no bound, ours do


def faults(found: Mapping[str, Any], kind: type, within: str = '') -> Iterator[str]:
  """Dotted names of the fields that `found` lacks or has with another type."""
  hints = typing.get_type_hints(kind)
  yield from key_faults(found, hints, within)
  for name, hint in hints.items():
    inner = _dataclass(hint)
    if inner and name in found and isinstance(found[name], dict):
      yield from faults(found[name], inner, f'{within}{name}.')


def from_json(kind: type, found: Any) -> Any:
  """Converts JSON's `found` to `kind` if that is a dataclass, and so for its fields."""
  inner = _dataclass(kind)
  if inner is None or found is None:
    return found
  hints = typing.get_type_hints(inner).items()
  return inner(**{name: from_json(hint, found[name]) for name, hint in hints})


def key_faults(
  owner: Mapping[str, object], kinds: Mapping[str, object], within: str = ''
) -> Iterator[str]:
  """Dotted names of the keys that `owner` lacks or has with another type."""
  for key, kind in kinds.items():
    if key not in owner or not _is(owner[key], kind):
      yield within + key


def _dataclass(kind: object) -> type | None:
  """The dataclass that an annotation names, alone or as `KIND | None`."""
  some = [one for one in typing.get_args(kind) or [kind] if one is not type(None)]
  return some[0] if len(some) == 1 and dataclasses.is_dataclass(some[0]) else None


def _is(value: object, kind: object) -> bool:
  """Whether a value of JSON is of the type that an annotation says."""
  if isinstance(kind, types.UnionType):
    return any(_is(value, one) for one in typing.get_args(kind))
  if kind is float:
    return _is(value, int) or (isinstance(value, float) and math.isfinite(value))
  if kind is int:
    # Python takes a bool for an integer.
    ours = isinstance(value, int) and not isinstance(value, bool)
    return ours and abs(value) < LARGEST
  if dataclasses.is_dataclass(kind):
    return isinstance(value, dict)
  plain = typing.get_origin(kind) or kind
  if not isinstance(value, plain):
    return False
  inside = typing.get_args(kind)
  values = value.values() if isinstance(value, dict) else value
  return not inside or all(_is(one, inside[-1]) for one in values)
