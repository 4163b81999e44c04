"""The backend "shark" for `accelerate`, and so for transformers' `Trainer`.

``import torch_shark.integrations.accelerate``, then
``TrainingArguments(torch_compile_backend="shark")`` or ``Accelerator(dynamo_backend="shark")``.
`accelerate` takes the names of a list of its own, whatever ``torch._dynamo.list_backends()`` has.
"""

from __future__ import annotations

from accelerate.utils import DynamoBackend

_NAME = "SHARK"


def _add() -> None:
    member = str.__new__(DynamoBackend, _NAME)
    member._name_ = member._value_ = _NAME
    DynamoBackend._member_map_[_NAME] = member
    DynamoBackend._member_names_.append(_NAME)
    DynamoBackend._value2member_map_[_NAME] = member


if _NAME not in DynamoBackend._member_map_:
    _add()
