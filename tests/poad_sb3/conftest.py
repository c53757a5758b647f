from __future__ import annotations

import pytest
import torch
from toy import randomise

from poad_sb3.lm import LanguageModel

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def lm() -> LanguageModel:
    """The pocket model with an adapter that does something. Leave it as it is."""
    model = LanguageModel()
    randomise(model)
    return model
