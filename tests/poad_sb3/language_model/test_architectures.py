"""Architectures that score packed trees or logits in their own ways, as tiny random models."""

import pytest
import torch
from tiny_architectures import MODELS, save

from poad_sb3.distributions import TrieDistribution
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.prompts import Question

ACTIONS = ("pick up the tomato", "pick up the bowl", "put the bowl on the table", "chop")


@pytest.mark.parametrize("name", MODELS)
def test_actions_are_scored_as_the_model_itself_scores_them(tmp_path, name):
    kind, settings, packs = MODELS[name]
    lm = LanguageModel(str(tmp_path), lora=save(tmp_path, kind, settings))
    assert lm.packs_trees is packs
    tokenized = TrieDistribution(lm).tokenized(
        Question("The cook stands beside the old white table in the kitchen and waits. You", ACTIONS)
    )
    with torch.no_grad():
        hidden = lm.hidden_states([tokenized.row.row])
        ours = lm.child_logits(hidden, tokenized.row.children).split(
            [len(children) for children in tokenized.row.children]
        )
        for number, sequence in enumerate(tokenized.trie.sequences):
            logits = lm.network(input_ids=torch.tensor([[*tokenized.prompt, *sequence]])).logits[0]
            for decision in tokenized.trie.decisions[number]:
                node = tokenized.row.children.index(decision.children)
                expected = logits[len(tokenized.prompt) - 1 + decision.position][list(decision.children)].log_softmax(0)
                torch.testing.assert_close(ours[node].log_softmax(0), expected, atol=1e-4, rtol=1e-4)
