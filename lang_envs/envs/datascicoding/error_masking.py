"""Mask error messages and output: keep the cause of the failure, remove all values that could carry data.

This is the second layer. The first: a text that reaches it comes from a run with permuted labels, so it has no
information on the true ones. Masking also removes information on the data, and characters that could break the layout
of a prompt. The choice among words can still pass: the agent's own names (at most 12), and plain words that are neither
long nor repeated, in a message of bounded length.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator
from enum import Enum, auto
from itertools import accumulate, groupby
from typing import NamedTuple

from lang_envs.sandbox.extraction import AgentCode

VALUE_MARK = "<value>"
"""Mark in place of a number, or of a run of values."""
TEXT_MARK = "<text>"
"""Mark in place of a quoted text, a long or odd word, a path, or characters that are not printable ASCII."""

_READ_AHEAD = 10  # how much of a text is looked at, in lengths of the result
_MAX_RUN = 3  # values that may follow one another
_MAX_WORD = 40  # characters of a word that is not the agent's
_MAX_REPEATS, _PER_CHARACTERS = 3, 300  # how often a word may occur; a common one three times as often
_MAX_NUMBERS = 2  # how many numbers there may be, in units of _MAX_REPEATS
_MAX_PASSES = 8
_MAX_OWN = 12  # names and words of the code's literals in one message
_MAX_EXCEPTION = 80  # characters of a name
_ELLIPSIS = " ..."
_MONOTONOUS = ((4, 2), (6, 3), (9, 3), (18, 6), (30, 10))  # so many words in a row, of at most so many kinds

_LIBRARY_EXCEPTIONS = """
LinAlgError AxisError UFuncTypeError DTypePromotionError TooHardError ComplexWarning RankWarning
VisibleDeprecationWarning ArpackError ArpackNoConvergence OptimizeWarning LinAlgWarning NotFittedError
InvalidParameterError UnsetMetadataPassedError ConvergenceWarning DataConversionWarning
DataDimensionalityWarning UndefinedMetricWarning FitFailedWarning EfficiencyWarning"""
_LIBRARY_WORDS = """
model build_model x_train y_train np add subtract multiply divide matmul
1D 2D 3D 1d 2d 3d 0d NoneType function method module generator coroutine ndarray dtype int8 int16 int32
int64 uint8 float16 float32 float64 numpy sklearn scipy pandas DataFrame Series builtin_function_or_method
fit predict predict_proba predict_log_proba decision_function transform fit_transform fit_predict score estimators
estimator X y self clone get_params set_params classes classes_ steps reshape ravel axis shape passthrough drop
C activation algorithm alpha average balanced balanced_subsample base_estimator batch_size beta_1 beta_2 bootstrap
class_prior class_weight covariance_type criterion cv degree dual early_stopping eps epsilon eta0 final_estimator
fit_intercept fit_prior gamma hidden_layer_sizes init interaction_only iterated_power kernel l1_ratio
l2_regularization leaf_size learning_rate learning_rate_init loss max_bins max_depth max_features max_fun max_iter
max_leaf_nodes max_samples method metric min_impurity_decrease min_samples_leaf min_samples_split momentum
n_bins n_clusters n_components n_estimators n_features n_iter n_iter_no_change n_jobs n_neighbors n_quantiles
n_samples n_samples_fit norm oob_score order output_distribution p penalty power priors probability
quantile_range radius random_state refit reg_param remainder scale score_func scoring shrinkage shuffle solver
sparse_output splitter stack_method store_covariance strategy subsample svd_solver tol transformers
validation_fraction var_smoothing verbose voting warm_start weights with_mean with_std whiten
absolute_error accuracy adam adaptive arpack auto ball_tree best box-cox brute chebyshev chi2 cityblock constant
cosine covariance_eigh deprecated eigen elasticnet encode entropy euclidean exponential f1 f1_macro friedman_mse
full gini hard hinge huber identity invscaling isotonic k-means++ kd_tree kmeans l1 l2 lbfgs liblinear linear
log log2 log_loss logistic lsqr manhattan max mean mean_squared_error median minkowski modified_huber
most_frequent multinomial newton-cg newton-cholesky none normal one-to-one onehot onehot-dense optimal ordinal
ovo ovr perceptron poly precomputed prefit prior quantile raise random randomized rbf relu roc_auc roc_auc_ovo
roc_auc_ovr sag saga sgd sigmoid soft sqrt squared_error squared_hinge stratified svd tanh temperature uniform
warn yeo-johnson"""
_SHORT_WORDS = "a an as at be by do if in is it no of on or so to up we X y"
_FREQUENT_WORDS = """
the and for but not are has got with from must should array arrays data values value estimator estimators
feature features class classes shape sample samples index dimension s x 1d 2d"""
_EXCEPTIONS = frozenset(_LIBRARY_EXCEPTIONS.split()) | {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
}
_LIBRARY = frozenset([*_LIBRARY_WORDS.split(), *dir(builtins), *keyword.kwlist])
_SMALL_WORDS = frozenset(_SHORT_WORDS.split())  # of English messages: neither values nor separators of values
_COMMON_WORDS = frozenset([*_SMALL_WORDS, *_FREQUENT_WORDS.split()])
_PUBLIC_WORDS = frozenset(word.lower() for word in _LIBRARY | _COMMON_WORDS)
_WORD = re.compile(r"[^\W\d]\w*")
_SPELLINGS = str.maketrans("`´‘’“”", "''''\"\"")  # noqa: RUF001 - a backtick could open a fence
_SET = re.compile(r"\{('[^'{}]*'(?:, '[^'{}]*')*)\}")
_NUMBER = r"\.?\d\w*(?:\.\w+)*(?:(?<=[eE])[+-]\d+)?"
_RANGE = r"range\ [\[(](?:-?inf|-?[0123]|0\.[05]|1\.0|100|255),\ (?:inf|[0123]|0\.[05]|1\.0|100|255)[\])]"
_TOKEN = r"""
      (?P<mark><(?:value|text)>)
    | (?P<phrase>reshape\(-1,\ 1\)|reshape\(1,\ -1\)|{range})
    | (?P<quoted>(?<!\w)[bBrRuUfF]{{0,2}}(?:'[^']*'|"[^"]*")(?!\w))
    | (?P<shape>\((?:{known})(?:,\ ?(?:{known}))*,?\))
    | (?P<path>(?<![\w.])(?:/[\w.+-]+){{2,}}/?)
    | (?P<number>(?:(?<![\w)\]>'"])[+-])?{number})
    | (?P<word>[^\W\d]\w*(?:'[a-z]{{1,2}}\b)?)
    | (?P<odd>[^\ -~]+|(?:[^\w\s'"<>]\ ?){{8,}})
"""


class _Kind(Enum):
    WORD = auto()
    SMALL = auto()  # a word that does not end a run of values
    VALUE = auto()
    MARK = auto()


class _Token(NamedTuple):
    gap: str  # the punctuation before it
    text: str
    kind: _Kind
    is_own: bool = False  # of the agent's vocabulary only


def mask(text: str, code: AgentCode, known_numbers: Collection[int], limit: int = 300) -> str:
    """Return one line of printable text with the error but no value.

    Kept are words, and names, numbers and quoted texts that are the agent's own, the task's, or well known. Every
    other number and quoted text, odd words and paths are replaced by marks, and so are values that come in runs of
    more than 3, words that are repeated, whosever they are, and the agent's own words after the first 12. Sets of
    strings are sorted: their order differs between processes.

    Args:
        text: A message, or output, of any length; only its first 10 * `limit` characters are looked at.
        code: Code that the message came from.
        known_numbers: Counts of the task: rows, features, classes.
        limit: Largest number of characters of the result.
    """
    words = _Words.of(code, known_numbers)
    result = text[: _READ_AHEAD * limit]
    for _ in range(_MAX_PASSES):  # masking a token may change the kind of its neighbours
        before, result = result, _masked_once(_one_line(result), words, limit)
        if result == before:
            break
    return result


def exception_name(name: str, code: AgentCode) -> str:
    """Return the name of an exception's class, if it is a well-known one or defined by the code; otherwise "Exception".

    At most 80 characters of it.

    Args:
        name: `type(error).__name__`, as the sandbox reports it.
        code: Code that raised the exception.
    """
    classes = {node.name for node in ast.walk(code.tree) if isinstance(node, ast.ClassDef)}
    return name[:_MAX_EXCEPTION] if name in _EXCEPTIONS or name in classes else "Exception"


def _masked_once(line: str, words: _Words, limit: int) -> str:
    tokens = _limit_own_words(_cut(_settled(list(_tokens(line, words))), limit))
    tokens = _cut(_settled(_without_repeats(tokens, _MAX_REPEATS * -(-limit // _PER_CHARACTERS))), limit)
    return "".join(token.gap + token.text for token in tokens).strip()


# ---------------------------------------------------------------------- from text to tokens


class _Words(NamedTuple):
    """Words that a message may contain."""

    names: frozenset[str]
    numbers: frozenset[str]
    texts: frozenset[str]
    own: frozenset[str]
    pattern: re.Pattern[str]

    @classmethod
    def of(cls, code: AgentCode, known_numbers: Collection[int]) -> _Words:
        plain = {str(int(number)) for number in known_numbers}
        constants = [node.value for node in ast.walk(code.tree) if isinstance(node, ast.Constant)]
        spelt = re.findall(rf"[+-]?{_NUMBER}", code.source)
        values = [str(value) for value in constants if isinstance(value, int | float) and abs(value) < 1e300]
        return cls(
            frozenset(_WORD.findall(code.source)) | _LIBRARY,
            frozenset(plain | set(spelt) | {number.lstrip("+-") for number in spelt} | set(values)),
            frozenset(value for value in constants if isinstance(value, str) and value.isprintable()),
            frozenset(_WORD.findall(" ".join(_spelt(code.tree)).lower())) - _PUBLIC_WORDS,
            re.compile(_TOKEN.format(known="|".join(sorted(plain)) or r"\Z", range=_RANGE, number=_NUMBER), re.VERBOSE),
        )


def _spelt(tree: ast.Module) -> Iterator[str]:
    """Yield every name and string of a tree."""
    for node in ast.walk(tree):
        for value in vars(node).values():
            yield from (text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))


def _one_line(text: str) -> str:
    text = _SET.sub(lambda match: "{" + ", ".join(sorted(match[1].split(", "))) + "}", text.translate(_SPELLINGS))
    return re.sub("~+", "~", re.sub(r"\s+", " ", text)).strip()


def _tokens(line: str, words: _Words) -> Iterator[_Token]:
    end = 0
    for match in words.pattern.finditer(line):
        text, kind = _shown(match.lastgroup or "", match[0], words)
        is_own = kind is not _Kind.MARK and not words.own.isdisjoint(_WORD.findall(text.lower()))
        yield _Token(_clean(line[end : match.start()]), text, kind, is_own)
        end = match.end()
    if line[end:].strip():
        yield _Token(_clean(line[end:]), "", _Kind.SMALL)


def _clean(gap: str) -> str:
    return re.sub(" +", " ", re.sub("['\"]", " ", gap))  # a quote without its other half


def _shown(group: str, text: str, words: _Words) -> tuple[str, _Kind]:
    """Return the masked token, by the group of its pattern."""
    if group == "word":
        return _shown_word(text, words)
    if group == "number":
        return (text, _Kind.VALUE) if text in words.numbers or text in _LIBRARY else (VALUE_MARK, _Kind.MARK)
    if group == "quoted":
        return (text, _Kind.WORD) if _may_quote(text, words) else (TEXT_MARK, _Kind.MARK)
    if group in ("shape", "phrase"):
        return text, _Kind.VALUE
    return (text if group == "mark" else TEXT_MARK), _Kind.MARK


def _shown_word(text: str, words: _Words) -> tuple[str, _Kind]:
    if text in _SMALL_WORDS:
        return text, _Kind.SMALL
    if text not in words.names:
        if len(text) > _MAX_WORD or _is_odd(text):
            return TEXT_MARK, _Kind.MARK
        if re.search(r"\d", text):
            return VALUE_MARK, _Kind.MARK
    is_value = len(text) < 3 or text in ("True", "False", "None")
    return text, _Kind.VALUE if is_value else _Kind.WORD


def _is_odd(word: str) -> bool:
    """Return whether a token is no word: not ASCII, or of very few letters for its length, as one spelt from data."""
    return not word.isascii() or (len(word) >= 6 and len(set(word.lower())) <= len(word) // 3)


def _may_quote(text: str, words: _Words) -> bool:
    quoted = text[1:-1] if text[0] in "'\"" else None
    if quoted is None:
        return False
    if quoted in words.texts or quoted in _LIBRARY or (len(quoted) <= 3 and re.fullmatch(r"[!-/:-@\[-^{-~]+", quoted)):
        return True
    return all(part in words.names for part in quoted.removesuffix("()").split("."))


# ---------------------------------------------------------------------- repetition and length


def _settled(tokens: list[_Token]) -> list[_Token]:
    for _ in range(_MAX_PASSES):  # a mark may bring two words together that are a run
        before, tokens = tokens, _without_monotony(_without_runs(tokens))
        if tokens == before:
            break
    return tokens


def _without_runs(tokens: list[_Token]) -> list[_Token]:
    """Replace more than 3 values in a row, and the tokens between them, by one mark."""
    result: list[_Token] = []
    for in_run, group in groupby(tokens, key=lambda token: token.kind is not _Kind.WORD):
        run = list(group)
        values = [i for i, token in enumerate(run) if token.kind is not _Kind.SMALL]
        if in_run and len(values) > _MAX_RUN:
            run[values[0] : values[-1] + 1] = [_Token(run[values[0]].gap, VALUE_MARK, _Kind.MARK)]
        result += run
    return result


def _without_monotony(tokens: list[_Token]) -> list[_Token]:
    """Replace stretches of few different words, such as `yes no no yes`, by one mark.

    Marks between the words do not count.
    """
    words = [i for i, token in enumerate(tokens) if token.text and token.kind is not _Kind.MARK]
    kinds = [tokens[i].text.lower() for i in words]
    monotonous = [False] * len(tokens)
    for length, limit in _MONOTONOUS:
        window = Counter(kinds[: length - 1])
        for last in range(length - 1, len(kinds)):
            first = last - length + 1
            window[kinds[last]] += 1
            if len(window) <= limit:
                monotonous[words[first] : words[last] + 1] = [True] * (words[last] + 1 - words[first])
            window[kinds[first]] -= 1
            if not window[kinds[first]]:
                del window[kinds[first]]
    result: list[_Token] = []
    for is_monotonous, group in groupby(range(len(tokens)), key=monotonous.__getitem__):
        stretch = [tokens[i] for i in group]
        result += [_Token(stretch[0].gap, VALUE_MARK, _Kind.MARK)] if is_monotonous else stretch
    return result


def _limit_own_words(tokens: list[_Token]) -> list[_Token]:
    """Mask the agent's own words after the first 12: a choice among many of them could spell anything."""
    result: list[_Token] = []
    n_own = 0
    for token in tokens:
        n_own += token.is_own
        hidden = token.is_own and n_own > _MAX_OWN
        result.append(_Token(token.gap, TEXT_MARK, _Kind.MARK) if hidden else token)
    return result


def _without_repeats(tokens: list[_Token], limit: int) -> list[_Token]:
    """Mask words that occur too often, at any place, and numbers after the first few."""
    counts = Counter(token.text.lower() for token in tokens if token.kind is not _Kind.MARK)
    often = {word for word, count in counts.items() if word and count > limit * (3 if word in _COMMON_WORDS else 1)}
    numbers = accumulate(token.kind is _Kind.VALUE and not token.text.isalpha() for token in tokens)
    result = []
    for token, number in zip(tokens, numbers, strict=True):
        is_number = token.kind is _Kind.VALUE and not token.text.isalpha()
        hidden = token.text.lower() in often or (is_number and number > _MAX_NUMBERS * limit)
        result.append(token._replace(text=TEXT_MARK, kind=_Kind.MARK) if hidden else token)
    return result


def _cut(tokens: list[_Token], limit: int) -> list[_Token]:
    """Return the tokens that fit, with an ellipsis where those are not all."""
    ends = list(accumulate(len(token.gap) + len(token.text) for token in tokens))
    if not ends or ends[-1] <= limit:
        return tokens
    return [*tokens[: bisect_right(ends, limit - len(_ELLIPSIS))], _Token(_ELLIPSIS[:limit], "", _Kind.SMALL)]
