"""Wrappers that change observations and actions of a language environment, not its dynamics."""

from lang_envs.wrappers.admissible import AdmissibleObservation
from lang_envs.wrappers.byte_observation import ByteObservation
from lang_envs.wrappers.tagged_action import TaggedAction
from lang_envs.wrappers.text_action import TextAction

__all__ = ["AdmissibleObservation", "ByteObservation", "TaggedAction", "TextAction"]
