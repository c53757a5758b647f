"""Kept and masked parts of messages. The messages are those of scikit-learn 1.9.1 and numpy 2.4.6."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_envs.envs.datascicoding.error_masking import exception_name, mask
from lang_envs.sandbox.extraction import extract

KNOWN = (512, 256, 18, 2)


@pytest.mark.parametrize(
    ("code", "message", "masked"),
    [
        (
            "model = LogisticRegression(penalty='l3')",
            "The 'penalty' parameter of LogisticRegression must be a str among {'l2', 'elasticnet', 'l1'} or None. "
            "Got 'l3' instead.",
            "The 'penalty' parameter of LogisticRegression must be a str among {'elasticnet', 'l1', 'l2'} or None. "
            "Got 'l3' instead.",
        ),
        (
            "model.fit(x_train, y_train[y_train > 0])",
            "Found input variables with inconsistent numbers of samples: [256, 131]",
            "Found input variables with inconsistent numbers of samples: [256, <value>]",
        ),
        (
            "model.fit(y_train, x_train)",
            "Expected 2D array, got 1D array instead:\narray=[1. 0. 1. 0. 0. 1. 0. 1.].\nReshape your data either "
            "using array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it contains a "
            "single sample.",
            "Expected 2D array, got 1D array instead: array=[<value>.]. Reshape your data either using "
            "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it contains a single "
            "sample.",
        ),
        ("model = X(", "'(' was never closed", None),
    ],
)
def test_messages_still_say_what_to_mend(code, message, masked):
    if masked is None:
        masked = message.replace("`", "'").replace("\n", " ")
    source = code if "(" not in code or code.count("(") == code.count(")") else "model = 1"
    assert mask(message, extract(source), KNOWN) == masked


SOURCE = "labels = {0: 'yes', 1: 'no'}\nraise ValueError('ab' + str(-1.5), feature_7, 'two words', 'é')"


@pytest.mark.parametrize(
    ("message", "masked"),
    [
        ("[0 1 1 0 1]", "[<value>]"),
        ("0 1 1", "0 1 1"),
        ("'yes', 'no', 'no', 'yes'", "<value>"),
        ("abbabaab", "<text>"),
        (
            "yes one no two yes three yes four no five yes six",
            "<text> one no two <text> three <text> four no five <text> six",
        ),
        ("-1.5 and 1.5", "-1.5 and 1.5"),
        ("१२ and ³ or ①", "<value> and <text> or <text>"),
        ("b'yes' or b'\\x00' or r'no'", "<text> or <text> or <text>"),
        ("(256, 18) and (256, 17)", "(256, 18) and (256, <value>)"),
        ("a\x1b[31mb\x07 \u202ec\u200b \ufeffd", "a<value>"),
        ("", ""),
    ],
)
def test_values_do_not_pass(message, masked):
    assert mask(message, extract(SOURCE), KNOWN) == masked


def test_the_result_has_at_most_limit_characters():
    code = extract("model = 'x' + 'a long literal of the source' * 3")
    message = " ".join(f"word{'abcdefghij'[i % 10]}{'klmnopqrst'[i // 10]}" for i in range(100))
    assert mask(message, code, ()) == message[: mask(message, code, ()).rindex(" ...")] + " ..."
    assert 290 < len(mask(message, code, ())) <= 300
    for limit in range(12):
        assert len(mask(message, code, (), limit)) <= limit
    assert len(mask(message, code, (), 2000)) == len(message)


@pytest.mark.parametrize("piece", ["0", "("])
def test_a_megabyte_takes_no_longer_than_a_page(piece):
    code = extract(SOURCE)
    assert len(mask(piece * (10**6 // len(piece)), code, KNOWN)) <= 300  # quadratic time would meet the timeout


WORDS = (
    "yes no 'yes' (256, 18) 256 \x1b[3m \u202e \ud800 é feature_7 x01 is <value> <text> /usr/lib/x.py 1e-5 b' True ..."
)
PHRASES = ["range [1, inf)", "reshape(-1, 1)", "don't", "{'b', 'a'}", "another ", "yes ", "no ", "0 ", "٣"]
FRAGMENTS = st.sampled_from([*"01'\"`[](),.~<>/\\-+e_ \n\0", *WORDS.split(" "), *PHRASES])


@given(st.lists(FRAGMENTS, max_size=60).map("".join) | st.text(max_size=100), st.integers(0, 40) | st.just(300))
def test_any_text_becomes_one_printable_line_that_masking_leaves_alone(text, limit):
    code = extract(SOURCE)
    masked = mask(text, code, KNOWN, limit)
    assert len(masked) <= limit
    assert masked.isprintable()
    assert "`" not in masked
    assert "~~" not in masked
    assert mask(masked, code, KNOWN, limit) == masked


@given(
    st.lists(st.integers(0, 2), min_size=8, max_size=60),
    st.sampled_from(["{}", "{}, ", "w{} ", "'{}' ", "[{}]", "{}\n"]),
)
def test_labels_in_a_row_do_not_pass(labels, form):
    code = extract("model = [0, 1, 2, '0', '1', '2']")
    masked = mask("got " + "".join(form.format(label) for label in labels), code, ())
    assert re.fullmatch(r"(got [\[]?)?<(value|text)>[\]]?,?", masked)


OWN = [f"{a}{b}word" for a in "abcdefgh" for b in "ijklmnop"]
PLAIN = [f"{a}{b}plain" for a in "abcdefgh" for b in "ijklmnop"]


@pytest.mark.parametrize(
    "code",
    [
        f"words = '{' '.join(OWN)}'",
        "\n".join(f"{word} = 1" for word in OWN),
        f"def fit({', '.join(OWN)}): pass",
        f"x.{'.'.join(OWN)}",
    ],
)
@pytest.mark.parametrize("form", ["{}", "({})"])
def test_twelve_words_of_the_agents_own_may_pass(code, form):
    words = [form.format(word) for word in OWN[:30]]
    masked = mask(" ".join(words), extract(code), ())
    assert [word for word in OWN if word in masked] == OWN[:12]
    mixed = " ".join(f"{word} {plain}" for word, plain in zip(OWN[:20], PLAIN, strict=False))
    shown = mask(mixed, extract(code), (), limit=2000).split()
    assert [word for word in OWN if word in shown] == OWN[:12]
    assert [word for word in PLAIN if word in shown] == PLAIN[:20]  # no word of the code


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("A" * 3000, "A" * 80),
        ("ValueError", "ValueError"),
        ("Inner", "Inner"),
        ("Zero", "Exception"),
        ("", "Exception"),
    ],
)
def test_exceptions_have_a_known_name_or_none(name, shown):
    long = f"class {'A' * 3000}(Exception): pass\n"
    code = extract(long + "class Own(Exception):\n    class Inner(ValueError): pass\nraise type('Zero', (Own,), {})")
    assert exception_name(name, code) == shown
