"""Actions between tags, behind a thought: answers in the manner of verl-agent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from lang_envs.answers import parse_action, show_actions
from lang_envs.arguments import check_integer
from lang_envs.core import MAX_LIST_LENGTH, Tokens, oracle
from lang_envs.errors import LangEnvsError
from lang_envs.spaces import TextObservation, TextSpace, TokenSequence
from lang_envs.wrappers.admissible import admissible_actions_of
from lang_envs.wrappers.text_action import TextAction


class TaggedAction(gym.Wrapper[str, Tokens, str, Tokens], gym.utils.RecordConstructorArgs):
    """An action is a text with a thought: `<think>It is raw.</think><action>chop the tomato</action>`.

    The environment gets what `lang_envs.parse_action` makes of the text between the last pair of action tags behind
    the last thought, and an invalid action where there is none. Case of tags does not matter, and an answer may do
    without a thought. Any text is an action (`metadata["actions"]` is `"text"`, or stays `"code"`), so
    `info["admissible_actions"]` is None: the observation lists the actions, and says how to answer.

    `info` gets `thought`, and `answer_error`: why the answer was an invalid action, empty if it was none.

    Args:
        env: An environment of texts and token sequences, whose actions are listed or free.
        thought_tags: Tags around the thought.
        action_tags: Tags around the action.
        max_thought_length: Number of tokens that an answer may have beside the action.

    Raises:
        TypeError: If observations are not text or actions not token sequences.
        LangEnvsError: If the tags are not four different texts.
        ValueError: If `max_thought_length` is less than 1.
    """

    def __init__(
        self,
        env: gym.Env[str, Tokens],
        thought_tags: Sequence[str] = ("<think>", "</think>"),
        action_tags: Sequence[str] = ("<action>", "</action>"),
        max_thought_length: int = 4096,
    ) -> None:
        tags = [*thought_tags, *action_tags]  # lists, as JSON gives them back
        gym.utils.RecordConstructorArgs.__init__(
            self, thought_tags=tags[:2], action_tags=tags[2:], max_thought_length=max_thought_length
        )
        gym.Wrapper.__init__(self, env)
        spaces = env.observation_space, env.action_space
        if not isinstance(spaces[0], TextSpace) or not isinstance(spaces[1], TokenSequence):
            raise TypeError(
                f"Expected an environment with TextSpace observations and a TokenSequence action space; got {spaces}. "
                "Fix: wrap a lang_envs environment directly."
            )
        if not all(isinstance(tag, str) for tag in tags) or len({tag.strip().casefold() for tag in tags} - {""}) != 4:
            raise LangEnvsError(f"Expected four different tags, two and two; got {tags}. Fix: ('<think>', '</think>').")
        check_integer("max_thought_length", max_thought_length, 1)
        kind = env.metadata.get("actions", "listed")
        self.metadata = {**env.metadata, "actions": "text" if kind == "listed" else kind}
        self.tags = tags
        self._patterns = [re.compile(re.escape(tag), re.IGNORECASE) for tag in tags]
        self._listed: list[str] | None = None
        has_length = env.has_wrapper_attr("max_list_length")
        list_length = env.get_wrapper_attr("max_list_length") if has_length else MAX_LIST_LENGTH
        self.observation_space = TextSpace(spaces[0].max_length + len(self._shown("", [])) + list_length)
        self.tokens = self.action_space = TokenSequence(spaces[1].tokenizer, spaces[1].max_length + max_thought_length)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode."""
        return self._outside(*self.env.reset(seed=seed, options=options), "", "")

    def step(self, action: Tokens) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Do the action of an answer."""
        thought, action_text, error = self._read(self.tokens.decode_finished(action))
        listed = self._listed
        if listed is not None and self.env.has_wrapper_attr("admissible_actions"):  # as after `set_state` too
            listed = self.env.get_wrapper_attr("admissible_actions")()
        encoder = TextAction(self.env)
        tokens = encoder.tokens.unfinished() if error else encoder.action(parse_action(action_text, listed))
        text, reward, terminated, truncated, info = self.env.step(tokens)
        if not error and info.get("invalid_action"):
            error = "not an admissible action"
        text, info = self._outside(text, info, thought, error)
        return text, reward, terminated, truncated, info

    def oracle_action(self) -> str:
        """Return the answer of an optimal policy, without a thought.

        Raises:
            NotImplementedError: If the environment has no oracle.
        """
        if not self.env.has_wrapper_attr("oracle_action"):
            raise NotImplementedError(f"{self.env} has no oracle. Fix: use an environment that has one.")
        return self._tagged(oracle(self.env))

    def _tagged(self, action: str) -> str:
        return f"{self.tags[2]}{action}{self.tags[3]}"

    def _outside(self, text: str, info: dict[str, Any], thought: str, error: str) -> tuple[str, dict[str, Any]]:
        """Return observation and info of the environment as they are outside."""
        self._listed = admissible_actions_of(info)
        shown = TextObservation(self._shown(text, self._listed))
        info = {**info, "admissible_actions": None, "thought": thought, "answer_error": error}
        if info.get("oracle_action") is not None:
            info["oracle_action"] = self._tagged(info["oracle_action"])
        return shown, info

    def _shown(self, text: str, actions: Sequence[str] | None) -> str:
        noun = "your action" if actions is None else "one of these actions, word for word,"
        request = "Think between {} and {}, then write {} between {} and {}".format(
            *self.tags[:2], noun, *self.tags[2:]
        )
        return f"{text}\n\n{request}." if actions is None else show_actions(text, actions, f"{request}:")

    def _read(self, answer: str | None) -> tuple[str, str, str]:
        """Return the thought and the action of an answer, and what is wrong with it."""
        if answer is None:
            return "", "", "too long"
        opened, closed, begun, ended = self._patterns
        *thoughts, rest = closed.split(answer)
        is_open = opened.search(rest) is not None
        if is_open:
            thoughts.append(rest)
        thought = "\n".join(opened.sub("", part).strip() for part in thoughts).strip()
        parts = [ended.split(part) for part in begun.split(rest)[1:]]
        actions = [part[0].strip() for part in parts if len(part) > 1]
        errors = {
            f"no {self.tags[1]}": is_open,
            f"no {self.tags[2]}": not parts,
            f"no {self.tags[3]}": not actions,
            f"nothing in {self.tags[2]}": not any(actions[-1:]),
        }
        return thought, "".join(actions[-1:]), next((error for error, is_made in errors.items() if is_made), "")
