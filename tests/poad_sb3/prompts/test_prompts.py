"""Prompt templates on every tokenizer of the zoo: their text, their tokens, and omissions."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from zoo import ZOO

from poad_sb3.errors import ModelError, ObservationError
from poad_sb3.prompts import (
    ChatPrompt,
    CompletionPrompt,
    Context,
    FillInMiddlePrompt,
    PastStep,
    Prompter,
    PromptTemplate,
    Question,
    prompt_template,
    template_of,
)
from poad_sb3.prompts.specs import context_spec_of
from poad_sb3.prompts.templates import DEFAULT_SYSTEM, ContextSpec

CHATS = [name for name, facts in ZOO.items() if facts.has_chat_template]
ACTIONS = ("press the red button", "x = 1\n    return  x\n", "wait, é", "two  spaces")
DATE = "26 Jul 2024"
every_model, every_chat = (pytest.mark.parametrize("name", names) for names in (list(ZOO), CHATS))


@pytest.fixture
def tokenizer_of(zoo_folder: Callable[[str], Path]) -> Callable[[str], Any]:
    return lambda name: AutoTokenizer.from_pretrained(zoo_folder(name))


def prompter(tokenizer: Any, template: PromptTemplate, max_length: int = 512) -> Prompter:
    return Prompter(tokenizer, template, max_length)


def steps(n: int) -> Context:
    return Context(tuple(PastStep(f"You see {k}.", f"do {k}") for k in range(n)))


def text_of(tokenizer: Any, ids: tuple[int, ...]) -> str:
    text: str = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    return text


# ------------------------------------------------------------------ choice of the template


@every_model
def test_the_default_is_a_chat_where_the_tokenizer_has_a_template(
    tokenizer_of: Callable[[str], Any], name: str
) -> None:
    chosen = prompt_template("auto", tokenizer_of(name))
    assert chosen == (ChatPrompt() if ZOO[name].has_chat_template else CompletionPrompt())
    settings = prompt_template({"history": 3}, tokenizer_of(name))
    assert (settings.kind, settings.context_spec) == (chosen.kind, ContextSpec(history=3))


@pytest.mark.parametrize(
    "template",
    [
        CompletionPrompt(),
        CompletionPrompt(history=4, max_history_tokens=100, separator="\n> "),
        ChatPrompt(system="", history=1, arguments={"enable_thinking": True}),
        FillInMiddlePrompt(tokens=("<a>", "<b>", "<c>")),
    ],
)
def test_a_template_survives_json(template: PromptTemplate) -> None:
    written = json.loads(json.dumps(template.to_dict()))
    assert template_of(written) == template
    assert hash(template_of(written)) == hash(template)
    assert (written["kind"], written["version"]) == (template.kind, 1)
    assert context_spec_of(written) == template.context_spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("caht", r"Expected prompt to be 'auto' or one of \['chat', 'completion', 'fim'\]; got 'caht'"),
        ({"kind": "chat", "sytem": ""}, "Expected settings of the chat prompt; got 'sytem'. Did you mean system"),
        ({"kind": "chat", "version": 2}, r"Expected a version of the chat prompt up to 1; got 2.*Fix"),
        ({"kind": "completion", "history": -1}, "Expected history of a prompt to be an integer of at least 0; got -1"),
    ],
)
def test_unknown_templates_are_refused(spec: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        template_of(spec)


def test_a_chat_needs_a_template_and_a_hole_its_tokens(tokenizer_of: Callable[[str], Any]) -> None:
    with pytest.raises(ModelError, match=r"Expected a tokenizer with a chat template.*Fix: prompt='completion'"):
        ChatPrompt().bind(tokenizer_of("gpt2"))
    with pytest.raises(ModelError, match=r"Expected a tokenizer with tokens for filling in the middle.*Fix"):
        FillInMiddlePrompt().bind(tokenizer_of("gpt2"))


# ------------------------------------------------------------------ chats


def messages(name: str, system: str, *turns: str) -> list[dict[str, str]]:
    """The conversation as a user of transformers would write it."""
    roles = ["user", "assistant"] * len(turns)
    talk = [{"role": role, "content": text} for role, text in zip(roles, turns, strict=False)]
    if not system:
        return talk
    if ZOO[name].supports_system:
        return [{"role": "system", "content": system}, *talk]
    talk[0]["content"] = f"{system}\n\n{talk[0]['content']}"
    return talk


def rendered(tokenizer: Any, talk: list[dict[str, str]], *, ask: bool) -> tuple[int, ...]:
    extra = {"enable_thinking": False, "date_string": DATE}
    text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=ask, **extra)
    return tuple(tokenizer.encode(text, add_special_tokens=False))


@every_chat
@pytest.mark.parametrize("system", ["", DEFAULT_SYSTEM])
def test_a_chat_is_what_the_template_makes_of_it(tokenizer_of: Callable[[str], Any], name: str, system: str) -> None:
    tokenizer = tokenizer_of(name)
    ours = prompter(tokenizer, ChatPrompt(system=system, history=2))
    past = Context((PastStep("The lamp is red.", "press it"), PastStep("The lamp is green.", "wait")))
    for turns, context in (
        (("The lamp is blue.",), Context()),
        (("The lamp is red.", "press it", "The lamp is green.", "wait", "The lamp is blue."), past),
    ):
        ids = ours.prompt_ids(Question("The lamp is blue.", None, context))
        assert text_of(tokenizer, ids) == text_of(
            tokenizer, rendered(tokenizer, messages(name, system, *turns), ask=True)
        )
        assert ids == rendered(tokenizer, messages(name, system, *turns), ask=True)


@every_chat
def test_prompt_and_action_are_the_tokens_of_the_whole_conversation(
    tokenizer_of: Callable[[str], Any], name: str
) -> None:
    """As the model saw them in its own training; qwen3 drops the thoughts of earlier answers, and is apart."""
    tokenizer = tokenizer_of(name)
    ours = prompter(tokenizer, ChatPrompt(system=""))
    for action in ("press the red button", "wait, é"):
        ids = (*ours.prompt_ids(Question("The lamp is red.", None)), *ours.action_ids(action))
        whole = rendered(tokenizer, messages(name, "", "The lamp is red.", action), ask=False)
        if name == "qwen3":
            assert text_of(tokenizer, ids).endswith(f"</think>\n\n{action}<|im_end|>")
        else:
            assert _without_space_before_end(tokenizer, whole)[: len(ids)] == ids


@every_chat
def test_a_prompt_after_a_past_is_that_of_the_whole_conversation(tokenizer_of: Callable[[str], Any], name: str) -> None:
    """Qwen3 puts an empty thought before each answer that it asks for, and drops it from earlier turns."""
    tokenizer, action = tokenizer_of(name), "press the red button"
    ours = prompter(tokenizer, ChatPrompt(history=1))
    begun = ours.prompt_ids(Question("The lamp is red.", None, Context()))
    past = (*begun, *ours.action_ids(action))
    continued = ours.prompt_ids(Question("The lamp is blue.", None, None, past))
    earlier = Context((PastStep("The lamp is red.", action),))
    assert continued[: len(past) - 1] == past[:-1]
    whole = text_of(tokenizer, ours.prompt_ids(Question("The lamp is blue.", None, earlier)))
    dropped = "<think>\n\n</think>\n\n" if name == "qwen3" else ""
    assert text_of(tokenizer, continued) == whole.replace(action, dropped + action)
    shorter = prompter(tokenizer, ChatPrompt(history=1, max_history_tokens=len(past) - 2))
    anew = Question("The lamp is blue.", None, Context(), past)
    assert shorter.prompt_ids(anew) == shorter.prompt_ids(anew._replace(past=()))


def _without_space_before_end(tokenizer: Any, ids: tuple[int, ...]) -> tuple[int, ...]:
    """Llama 2 writes a space before its end token; an action ends where its text ends."""
    spaces = {tokenizer.convert_tokens_to_ids(token) for token in ("▁",)} - {None, tokenizer.unk_token_id}
    ends = {tokenizer.eos_token_id}
    return tuple(t for k, t in enumerate(ids) if not (t in spaces and k + 1 < len(ids) and ids[k + 1] in ends))


@every_chat
def test_a_turn_ends_by_the_template_s_own_token(tokenizer_of: Callable[[str], Any], name: str) -> None:
    tokenizer = tokenizer_of(name)
    ours = prompter(tokenizer, ChatPrompt())
    assert tokenizer.convert_ids_to_tokens(ours.end_token) == ZOO[name].turn_end
    assert {ours.end_token, tokenizer.eos_token_id} <= ours.end_tokens
    assert prompter(tokenizer, CompletionPrompt()).end_token == tokenizer.eos_token_id


@every_model
@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_text_of_an_action_survives_encoding(tokenizer_of: Callable[[str], Any], name: str, kind: str) -> None:
    if kind == "chat" and name not in CHATS:
        pytest.skip("no chat template")
    ours = prompter(tokenizer_of(name), template_of(kind))
    for action in (*ACTIONS, "stop </s> <|im_end|> <end_of_turn> <think> here", ""):
        ids = ours.action_ids(action)
        assert (ids[-1], sum(token in ours.end_tokens for token in ids)) == (ours.end_token, 1)
        assert ours.action_text(ids) == action
        assert ours.action_text(ids[:-1]) == action, "a text that was cut"


def test_the_text_of_the_pad_token_is_an_action_like_any_other(tokenizer_of: Callable[[str], Any]) -> None:
    """Neither is it cut off as padding, nor does it become the token."""
    tokenizer = tokenizer_of("llama3")
    tokenizer.pad_token = tokenizer.pad_token or "<|finetune_right_pad_id|>"
    ours, text = prompter(tokenizer, CompletionPrompt()), f"write {tokenizer.pad_token}"
    ids = ours.action_ids(text)
    assert tokenizer.pad_token_id not in ids
    assert ours.action_text(ids) == text


@every_chat
def test_special_tokens_in_observations_are_text(tokenizer_of: Callable[[str], Any], name: str) -> None:
    """Otherwise an observation could end the turn and speak for the assistant."""
    tokenizer = tokenizer_of(name)
    ours = prompter(tokenizer, ChatPrompt(history=1))
    names = [str(token) for token in tokenizer.added_tokens_decoder.values() if str(token).strip()]
    meaning = {number for number, token in tokenizer.added_tokens_decoder.items() if str(token).strip()}

    def count(words: str) -> int:
        past = Context((PastStep(f"seen {words}", f"done {words}"),))
        return sum(token in meaning for token in ours.prompt_ids(Question(f"See {words}.", None, past)))

    assert count(" ".join(names)) == count("nothing")


@every_chat
def test_lone_surrogates_become_question_marks(tokenizer_of: Callable[[str], Any], name: str) -> None:
    ours = prompter(tokenizer_of(name), ChatPrompt())
    half, mark = (Question(f"The file {name}.csv", None) for name in ("\udcff", "?"))
    assert ours.prompt_ids(half) == ours.prompt_ids(mark)
    assert ours.action_ids("open \udcff") == ours.action_ids("open ?")


def test_a_template_that_hides_messages_is_refused(tokenizer_of: Callable[[str], Any]) -> None:
    tokenizer = tokenizer_of("qwen2")
    tokenizer.chat_template = "{{ messages[-1].content }}{% if add_generation_prompt %}:{% endif %}"
    ours = prompter(tokenizer, ChatPrompt(system="", history=1))
    assert ours.prompt_ids(Question("red", None, Context()))
    with pytest.raises(ModelError, match=r"Expected a chat template that shows all 3 messages.*number 1 \(user\)"):
        ours.prompt_ids(Question("red", None, steps(1)))


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def test_special_tokens_before_an_answer_belong_to_the_prompt(tokenizer_of: Callable[[str], Any]) -> None:
    """A template without a generation prompt: the agent is not to write the header, least of all letter by letter."""
    tokenizer = tokenizer_of("qwen2")
    tokenizer.chat_template = CHATML
    ours = prompter(tokenizer, ChatPrompt(system=""))
    ids = ours.prompt_ids(Question("A door.", None))
    assert text_of(tokenizer, ids) == "<|im_start|>user\nA door.<|im_end|>\n<|im_start|>assistant\n"
    assert ids.count(tokenizer.convert_tokens_to_ids("<|im_start|>")) == 2
    assert text_of(tokenizer, ours.action_ids("open")) == "open<|im_end|>"


def asking(begin: str, *, history: str = "", comment: str = "") -> str:
    """ChatML whose generation prompt has a beginning of the answer; past answers may have one too."""
    talk = CHATML.replace("{{ m.content }}", f"{{{{ '{history}' if m.role == 'assistant' }}}}{{{{ m.content }}}}")
    return f"{{# {comment} #}}{talk}{{{{ '<|im_start|>assistant\n{begin}' if add_generation_prompt }}}}\n"


@pytest.mark.parametrize(
    ("begin", "closed", "comment"),
    [
        ("<think>\n", "<think>\n\n</think>\n\n", ""),
        ("[THINK]", "[THINK]\n\n[/THINK]\n\n", ""),
        ("<|thinking|>\n", "<|thinking|>\n\n<|/thinking|>\n\n", "<|/thinking|> </think>"),
        ("<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n", ""),
        ("<|channel>thought\n<channel|>", "<|channel>thought\n<channel|>", ""),
        ("<answer>", "<answer>", "history"),
    ],
)
def test_closes_a_thought_before_the_action(
    tokenizer_of: Callable[[str], Any], begin: str, closed: str, comment: str
) -> None:
    """Empty, as Qwen3 does it. Past answers stay as the template shows them."""
    tokenizer = tokenizer_of("qwen2")
    tokenizer.chat_template = asking(begin, history=begin if comment == "history" else "", comment=comment)
    ours = prompter(tokenizer, ChatPrompt(system="", history=1))
    prompt = text_of(tokenizer, ours.prompt_ids(Question("Red.", None, steps(1))))
    assert prompt.endswith(f"<|im_start|>user\nRed.<|im_end|>\n<|im_start|>assistant\n{closed}")
    assert prompt.count(closed) == (2 if comment == "history" else 1)
    assert text_of(tokenizer, ours.action_ids("open")) == "open<|im_end|>"
    tokenizer.chat_template = ours.layout.changed_template or tokenizer.chat_template  # as an export writes it
    assert text_of(tokenizer, rendered(tokenizer, messages("qwen2", "", "Red."), ask=True)).endswith(closed)


@pytest.mark.parametrize(
    ("begin", "history"),
    [
        ("<|START_THINKING|>", ""),
        ("<think>\nOkay, ", ""),
        ("", "<think>"),
    ],
)
def test_rejects_an_answer_inside_an_open_thought(tokenizer_of: Callable[[str], Any], begin: str, history: str) -> None:
    tokenizer = tokenizer_of("qwen2")
    tokenizer.chat_template = asking(begin, history=history)
    with pytest.raises(ModelError, match="no text but an empty thought before an answer; got '"):
        prompter(tokenizer, ChatPrompt(system="", history=1)).prompt_ids(Question("Red.", None, steps(1)))


SPEAKS = "{{ m.content }}{{ ' Use <think> tags.' if m.role == 'user' }}"
"""Content of a message in a template that speaks of thoughts, but opens none."""


@pytest.mark.parametrize(
    "template",
    [
        asking("").replace("{{ m.content }}", SPEAKS),
        CHATML.replace("{{ m.content }}", SPEAKS),
        f"{CHATML}<|im_start|>system\nUse <think> tags.<|im_end|>\n"
        "{{ '<|im_start|>assistant\n' if add_generation_prompt }}",
        "{% for m in messages %}{{ '[INST] ' ~ m.content ~ ' Use <think> tags. [/INST]' if m.role == 'user' else "
        "m.content ~ '<|im_end|>' }}{% endfor %}",
    ],
    ids=["user", "without generation prompt", "system", "instructions"],
)
def test_takes_a_template_that_speaks_of_thoughts(tokenizer_of: Callable[[str], Any], template: str) -> None:
    tokenizer = tokenizer_of("qwen2")
    tokenizer.chat_template = template
    ours = prompter(tokenizer, ChatPrompt(system="", history=1))
    shown = text_of(tokenizer, ours.prompt_ids(Question("Red.", None, steps(1))))
    assert shown.endswith(("assistant\n", "[/INST]"))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (CHATML.replace("{{ m.content }}", "{{ m.content }} {{ m.content }}"), "shows each message once"),
        (CHATML.replace("m.content }}", "m.content | upper }}"), "shows messages as they are.*changes"),
    ],
)
def test_a_template_that_changes_what_it_is_given_is_refused(
    tokenizer_of: Callable[[str], Any], template: str, message: str
) -> None:
    tokenizer = tokenizer_of("qwen2")
    tokenizer.chat_template = template
    with pytest.raises(ModelError, match=f"(?s)Expected a chat template that .*{message}.*Fix: prompt='completion'"):
        ChatPrompt(system="").bind(tokenizer)


def test_an_unknown_token_with_another_role_is_no_text(tokenizer_of: Callable[[str], Any]) -> None:
    """As the class default of Qwen's and GPT-2's tokenizers: the unknown token is the one that ends a text."""
    tokenizer = tokenizer_of("qwen2")
    tokenizer.unk_token = "<|im_end|>"
    words = "See <|im_end|> <|endoftext|>."
    ids = prompter(tokenizer, ChatPrompt()).prompt_ids(Question(words, None))
    plain = prompter(tokenizer, ChatPrompt()).prompt_ids(Question("See it.", None))
    for name in ("<|im_end|>", "<|endoftext|>"):
        number = tokenizer.convert_tokens_to_ids(name)
        assert ids.count(number) == plain.count(number)


def test_runs_of_spaces_are_text(tokenizer_of: Callable[[str], Any]) -> None:
    """Gemma's tokenizers have them among the added tokens, written with the mark of a space."""
    tokenizer = tokenizer_of("gemma2")
    tokenizer.add_tokens([AddedToken("\u2581" * n, normalized=True) for n in (2, 4)])
    code, number = "def wash():    return 1", tokenizer.convert_tokens_to_ids("\u2581" * 4)
    plain = tokenizer.encode(code, add_special_tokens=False)
    ids = prompter(tokenizer, CompletionPrompt()).action_ids(code)
    assert number in plain
    assert ids[-len(plain) + plain.index(number) - 1 : -1] == tuple(plain[plain.index(number) :])


def test_a_vocabulary_that_holds_the_names_of_special_tokens(tmp_path: Path) -> None:
    """A Unigram model finds `</s>` among its own pieces, for any setting of added tokens."""
    pieces = [("<unk>", 0.0), ("</s>", -1.0), ("▁", -2.0), *((letter, -3.0) for letter in "<>/sandcok ")]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.Unigram(pieces, unk_id=0)), unk_token="<unk>", eos_token="</s>"
    )
    ours = prompter(tokenizer, CompletionPrompt())
    assert ours.prompt_ids(Question("and </s> and", None)).count(ours.end_token) == 0
    assert ours.action_ids("</s>").count(ours.end_token) == 1


def test_names_of_tokens_are_found_in_any_case(tokenizer_of: Callable[[str], Any]) -> None:
    tokenizer = tokenizer_of("gpt2")
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_tokens([AddedToken("<think>", normalized=True)])
    number = tokenizer.convert_tokens_to_ids("<think>")
    assert number in tokenizer.encode("so <THINK> now")
    ours = prompter(tokenizer, CompletionPrompt())
    assert number not in ours.prompt_ids(Question("so <THINK> now", None))


def test_a_chat_does_not_change_with_the_day(tokenizer_of: Callable[[str], Any]) -> None:
    tokenizer = tokenizer_of("llama3")
    text = text_of(tokenizer, prompter(tokenizer, ChatPrompt()).prompt_ids(Question("The lamp is red.", None)))
    assert DATE in text
    clock = "{{ 'Today: ' + strftime_now('%d %B %Y') + '. ' }}"
    tokenizer.chat_template = clock + tokenizer.chat_template
    text = text_of(tokenizer, prompter(tokenizer, ChatPrompt()).prompt_ids(Question("The lamp is red.", None)))
    assert f"Today: {DATE}. " in text


# ------------------------------------------------------------------ history


@pytest.mark.parametrize("name", ["gpt2", "llama2"])
def test_a_completion_shows_steps_as_lines(tokenizer_of: Callable[[str], Any], name: str) -> None:
    tokenizer = tokenizer_of(name)
    ours = prompter(tokenizer, CompletionPrompt(history=2))
    ids = ours.prompt_ids(Question("You see 3.", None, steps(3)))
    expected = tokenizer.encode("You see 1. do 1\nYou see 2. do 2\nYou see 3.")
    assert ids == tuple(expected), "the latest two of three"
    assert ours.prompt_ids(Question("You see 0.", None, Context())) == tuple(tokenizer.encode("You see 0."))


@pytest.mark.parametrize(("name", "kind"), [("gpt2", "completion"), ("qwen2", "chat")])
def test_steps_are_left_out_from_the_middle(tokenizer_of: Callable[[str], Any], name: str, kind: str) -> None:
    tokenizer, n = tokenizer_of(name), 9
    question = Question("Now act.", None, steps(n))
    settings: dict[str, Any] = {"kind": kind, "history": n, **({"system": ""} if kind == "chat" else {})}
    whole = prompter(tokenizer, template_of(settings)).prompt_ids(question)
    bare = prompter(tokenizer, template_of(settings)).prompt_ids(question._replace(context=Context()))
    visible_before = set(range(n))
    for bound in range(len(whole) + 4, len(bare) + 4, -7):
        ours = prompter(tokenizer, template_of(settings), max_length=bound)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ids = ours.prompt_ids(question, reserve=4)
            ours.prompt_ids(question, reserve=4)
        text = text_of(tokenizer, ids)
        visible = [k for k in range(n) if f"You see {k}." in text and f"do {k}" in text]
        left_out = sorted(set(range(n)) - set(visible))
        assert "Now act." in text
        assert len(ids) + 4 <= bound
        assert set(visible) <= visible_before, "a smaller room never shows more"
        visible_before = set(visible)
        assert left_out == list(range(left_out[0], left_out[-1] + 1)) if left_out else True, "one gap"
        if visible:
            assert n - 1 in visible, "the latest step goes last"
        if len(visible) > 1:
            assert 0 in visible, "the first stays while there is room for two"
        warned = [str(warning.message) for warning in caught]
        assert len(warned) == bool(left_out), "once for each policy"
        assert all(f": {len(left_out)} of {n} steps are left out from its middle" in message for message in warned)
        mark = f"{len(left_out)} earlier step{'' if len(left_out) == 1 else 's'}"
        assert mark in text if visible and left_out else mark not in text or not visible
    assert len(visible_before) < n - 3


@pytest.mark.parametrize("n", [1, 4])
def test_the_mark_stands_alone_where_no_step_fits(tokenizer_of: Callable[[str], Any], n: int) -> None:
    question = Question("Now act.", None, Context((PastStep("You see it. " * 30, "do it"),) * n))
    ours = prompter(tokenizer_of("gpt2"), CompletionPrompt(history=n, max_history_tokens=40))
    with pytest.warns(UserWarning, match=f": {n} of {n} steps are left out"):
        assert f"{n} earlier step" in text_of(tokenizer_of("gpt2"), ours.prompt_ids(question))


def test_a_budget_bounds_the_history_alone(tokenizer_of: Callable[[str], Any]) -> None:
    tokenizer, question = tokenizer_of("gpt2"), Question("Now act. " * 20, None, steps(9))
    bare = prompter(tokenizer, CompletionPrompt()).prompt_ids(question)
    lengths = []
    for budget in (1, 20, 60, 1000):
        ours = prompter(tokenizer, CompletionPrompt(history=9, max_history_tokens=budget))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ids = ours.prompt_ids(question)
        lengths.append(len(ids))
        assert len(ids) - len(bare) <= budget
        assert text_of(tokenizer, ids).endswith("Now act. " * 20)
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_the_task_is_never_cut(tokenizer_of: Callable[[str], Any]) -> None:
    tokenizer = tokenizer_of("gpt2")
    ours = prompter(tokenizer, CompletionPrompt(history=3), max_length=30)
    fits, too_long = " press" * 8, " press" * 40
    with pytest.warns(UserWarning, match="3 of 3 steps are left out"):
        ids = ours.prompt_ids(Question(fits, None, steps(3)), reserve=25)
    assert fits in text_of(tokenizer, ids), "a shorter action still fits behind it"
    with pytest.raises(
        ModelError, match=r"Expected a prompt of at most 30 tokens .*240 characters takes .*Fix: shorten"
    ):
        ours.prompt_ids(Question(too_long, None, steps(3)))


# ------------------------------------------------------------------ holes


@pytest.mark.parametrize(
    "holes",
    [
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
        ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ],
)
def test_a_hole_is_filled_between_prefix_and_suffix(
    tokenizer_of: Callable[[str], Any], holes: tuple[str, str, str]
) -> None:
    tokenizer = tokenizer_of("qwen2")
    tokenizer.add_special_tokens({"extra_special_tokens": [*holes, "▁<EOT>"]})
    ours = prompter(tokenizer, FillInMiddlePrompt())
    fields = (("prefix", "def f(x):\n    "), ("suffix", f"\n    return model {holes[2]}\n"))
    ids = ours.prompt_ids(Question("not shown", None, Context((), fields)))
    marks = [tokenizer.convert_tokens_to_ids(hole) for hole in holes]
    assert [ids.index(mark) for mark in marks] == [0, ids.index(marks[1]), len(ids) - 1]
    assert [ids.count(mark) for mark in marks] == [1, 1, 1], "a suffix that spells a mark is text"
    assert text_of(tokenizer, ids[1 : ids.index(marks[1])]) == fields[0][1]
    assert text_of(tokenizer, ids[ids.index(marks[1]) + 1 : -1]) == fields[1][1]
    end = "▁<EOT>" if holes[0] == "▁<PRE>" else "<|im_end|>"
    assert ours.end_token == tokenizer.convert_tokens_to_ids(end)
    for body in ("    model = fit(x)\n", "x"):
        assert ours.action_text(ours.action_ids(body)) == body
    with pytest.raises(ObservationError, match=r"Expected info\['prefix'\] and info\['suffix'\].*Fix"):
        ours.prompt_ids(Question("text", None))
    with pytest.raises(ModelError, match=r"Expected prompt='chat' or prompt='completion' with keep_thoughts=True"):
        ours.prompt_ids(Question("text", None, past=ids))
