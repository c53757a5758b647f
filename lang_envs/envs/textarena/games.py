"""The games of TextArena for one player that need no network: their listed actions, and boards in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import permutations
from typing import Any, NamedTuple

_DIRECTIONS = ("up", "down", "left", "right")


class Game(NamedTuple):
    """A game.

    Attributes:
        actions: Function from the game's environment to its messages by the texts of the actions that are listed now;
            None where any text is an action, and the game says what it understands.
        describe: Function from the game's environment to its state in words; None where its latest messages are shown.
    """

    actions: Callable[[Any], Mapping[str, str]] | None = None
    describe: Callable[[Any], str] | None = None


def _bracketed(words: Iterable[str], verb: str = "") -> dict[str, str]:
    return {f"{verb} {word}".strip(): f"[{word}]" for word in words}


def _frozen_lake(game: Any) -> str:
    """Say where the fields are, in a tenth of the tokens of the drawn board."""
    state, size = game.state.game_state, game.size
    fields = {kind: [(r, c) for r in range(size) for c in range(size) if state["grid"][r][c] == kind] for kind in "HG"}
    holes = ", ".join(f"{r} {c}" for r, c in fields["H"]) or "nowhere"
    (goal,) = fields["G"]
    row, column = state["player_pos"]
    return (
        f"A frozen lake of {size} rows and {size} columns, counted from 0. Holes are at {holes}. "
        f"The goal is at {goal[0]} {goal[1]}. You are at {row} {column}. You go"
    )


def _guess_the_number(game: Any) -> str:
    guesses = [f"{guess}: {hint}" for guess, hint in game.state.game_state["guess_history"]]
    left = game.max_turns - game.state.turn
    hints = f"The number is, by your guesses, {', '.join(guesses)}. " if guesses else ""
    return f"Guess the number from {game.min_number} to {game.max_number}. {hints}Guesses left: {left}. You"


def _towers(game: Any) -> str:
    towers = game.state.game_state["towers"]
    disks = "; ".join(f"{name} has {' '.join(map(str, reversed(held))) or 'none'}" for name, held in towers.items())
    return f"Towers of disks, the top one first: {disks}. All have to be on C, a larger one never on a smaller. You"


def _moves_of_disks(game: Any) -> dict[str, str]:
    towers = game.state.game_state["towers"]
    pairs = [(a, b) for a, b in permutations(towers, 2) if towers[a]]
    fitting = [(a, b) for a, b in pairs if not towers[b] or towers[a][-1] < towers[b][-1]]
    return {f"move from {a} to {b}": f"[{a} {b}]" for a, b in fitting}


def _moves_of_tiles(game: Any) -> dict[str, str]:
    row, column = game._get_empty_position()
    is_legal = {"up": row < 3, "down": row > 0, "left": column < 3, "right": column > 0}
    return _bracketed([direction for direction in _DIRECTIONS if is_legal[direction]], "slide")


def _unguessed(game: Any) -> dict[str, str]:
    numbers = range(game.min_number, game.max_number + 1)
    return _bracketed([str(number) for number in numbers if number not in game.guessed_numbers], "guess")


def _lights(game: Any) -> dict[str, str]:
    return {f"press {r} {c}": f"[{r} {c}]" for r in range(game.size) for c in range(game.size)}


def _hidden_cells(game: Any) -> dict[str, str]:
    cells = [(r, c) for r, row in enumerate(game.revealed) for c, is_revealed in enumerate(row) if not is_revealed]
    return {f"reveal {r} {c}": f"[{r} {c}]" for r, c in cells}


def _jumps(game: Any) -> dict[str, str]:
    pegs = game.state.game_state["board"]
    legal = [(start, end) for start, over, end in game.ALLOWED_MOVES if pegs[start] and pegs[over] and not pegs[end]]
    return {f"jump from {start} to {end}": f"[{start} {end}]" for start, end in legal}


def _slides_of_cars(game: Any) -> dict[str, str]:
    cars = game.state.game_state["vehicles"]
    ways = [(name, way) for name in cars for way in ("forward", "back")]
    free = [(name, way) for name, way in ways if game._can_move(cars, cars[name], way == "forward")]
    return {f"move {name} {way}": f"[{name}{'+' if way == 'forward' else '-'}]" for name, way in free}


def _calculations(game: Any) -> dict[str, str]:
    pairs = list(permutations(range(len(game.numbers)), 2))
    possible = [(i, j, sign) for sign in "+-*/" for i, j in pairs if game._execute_operation(i, j, sign) is not None]
    return {f"compute {game.numbers[i]} {sign} {game.numbers[j]}": f"[{i} {j} {sign}]" for i, j, sign in possible}


def _assignments(game: Any) -> dict[str, str]:
    free = [digit for digit in range(10) if digit not in game.digit_used]
    pairs = [(letter, digit) for letter in sorted(game.letters) for digit in free]
    legal = [(letter, digit) for letter, digit in pairs if digit or letter not in game.first_letters]
    return {f"set {letter} to {digit}": f"[{letter} {digit}]" for letter, digit in legal}


def _edges(game: Any) -> dict[str, str]:
    across = [f"h {r} {c}" for r in range(game.R + 1) for c in range(game.C)]
    return _bracketed([*across, *(f"v {r} {c}" for r in range(game.R) for c in range(game.C + 1))], "toggle")


GAMES: Mapping[str, Game] = {
    "2048": Game(lambda game: {f"slide {word}": f"[{word.title()}]" for word in _DIRECTIONS}),
    "Bandit": Game(lambda game: _bracketed(game.buttons, "press")),
    "Blackjack": Game(lambda game: _bracketed(("hit", "stand"))),
    "Countdown": Game(_calculations),
    "Crosswords": Game(),
    "Cryptarithm": Game(_assignments),
    "FifteenPuzzle": Game(_moves_of_tiles),
    "FrozenLake": Game(lambda game: _bracketed(_DIRECTIONS), _frozen_lake),
    "GuessTheNumber": Game(_unguessed, _guess_the_number),
    "LightsOut": Game(_lights),
    "LogicPuzzle": Game(),
    "Mastermind": Game(),
    "Minesweeper": Game(_hidden_cells),
    "PegJump": Game(_jumps),
    "RushHour": Game(_slides_of_cars),
    "Secretary": Game(lambda game: _bracketed(("accept", "continue"))),
    "Set": Game(),
    "Slitherlink": Game(_edges),
    "Sokoban": Game(lambda game: _bracketed(_DIRECTIONS, "go")),
    "Sudoku": Game(),
    "ThreeCardMonte": Game(lambda game: _bracketed(map(str, range(game.num_cups)), "guess")),
    "TowerOfHanoi": Game(_moves_of_disks, _towers),
}
"""Games by their names in the package."""
