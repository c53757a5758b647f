"""Prompts of observations: templates, and their binding to a tokenizer.

A *template* is data: it can be compared, written as JSON and saved with a run. Bound to a tokenizer it becomes a
*layout*, with the places of special tokens. The `Prompter` makes token ids of both.
"""

from poad_sb3.prompts.encoding import Prompter
from poad_sb3.prompts.question import Context, PastStep, Question
from poad_sb3.prompts.specs import PromptSpec, prompt_template, template_of
from poad_sb3.prompts.templates import ChatPrompt, CompletionPrompt, FillInMiddlePrompt, PromptTemplate

__all__ = [
    "ChatPrompt",
    "CompletionPrompt",
    "Context",
    "FillInMiddlePrompt",
    "PastStep",
    "PromptSpec",
    "PromptTemplate",
    "Prompter",
    "Question",
    "prompt_template",
    "template_of",
]
