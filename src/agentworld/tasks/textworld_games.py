"""Text games of `textworld`: `ready = "textworld:quest"`, a house with a quest of several commands.

The world and its quest are the package's, generated from a seed; the text that the player reads is written here from
the facts of the game's state, since the package's own needs each game compiled for a virtual machine. The agent has one
tool, `act`, that takes a command; winning is right, and how far the player came is in the details.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from agentworld.errors import ConfigError
from agentworld.records import Message, Tool
from agentworld.tasks.base import Observation, Score, Task
from agentworld.tasks.drawing import check_split, draw, refuse_unknown, seed_at, split_of

DEFAULT_COUNT = 20  # a game takes a moment to make
GAMES = ("quest",)
OPTIONS = {"rooms": 3, "objects": 4, "quest_length": 3, "most_commands": 30}
ACT: Tool = {
    "type": "function",
    "function": {
        "name": "act",
        "description": "Do something in the game: one command. `look` says where you are and what you can do.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "Such as: go north, open chest"}},
            "required": ["command"],
        },
    },
}
_HOW = ("open", "closed", "locked")
_OVER = "*** The End ***"


class GameSet:
    """Games of one kind. `options`: rooms, objects, quest_length (commands of the shortest way), most_commands."""

    def __init__(self, game: str, options: Mapping[str, Any]) -> None:
        if game not in GAMES:
            raise ConfigError(
                f"there is no game {game!r}", path="$.ready", hint=f"There are: textworld:{', textworld:'.join(GAMES)}"
            )
        self.name = f"textworld.{game}"
        refuse_unknown(self.name, options, dict.fromkeys(OPTIONS, int))
        self.options = {**OPTIONS, **options}
        for option, value in self.options.items():
            if not 1 <= value <= 100:
                raise ConfigError(f"{option} is from 1 to 100, not {value}", path=f"$.options.{option}")

    def tasks(self, count: int | None = None, *, split: str = "train", seed: int = 0) -> list[Task]:
        """`count` (default 20) different games."""
        wanted = DEFAULT_COUNT if count is None else count
        return draw(self.name, self._made(seed, 30 * (wanted + 2)), wanted, check_split(split))

    def environment(self, task: Task) -> Player:
        """The game at its start; it is made at the first command, which takes a moment."""
        return Player(task.settings)

    def check(self, task: Task, answer: str | None) -> Score:
        """Judge what an agent without tools wrote: a command a line."""
        player = Player(task.settings)
        for line in (answer or "").splitlines():
            if line.strip():
                player.act(line)
        return player.check(answer)

    def _made(self, seed: int, limit: int) -> Iterator[Task]:
        for index in range(limit):
            settings = {**self.options, "seed": seed_at(seed, index)}
            player = Player(settings)
            first, objective = player.look(), player.objective
            split, key = split_of(self.name, [objective, first])
            yield Task(
                task_id=f"{self.name}-{key}",
                task_set=self.name,
                messages=(Message(role="user", content=f"{objective}\n\n{first}"),),
                reference=player.walkthrough,
                split=split,
                settings=settings,
                difficulty={name: settings[name] for name in ("rooms", "objects", "quest_length")},
                provenance={"package": f"textworld {version('textworld')}", "seed": settings["seed"]},
            )


class Player:
    """One game being played, as an environment."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._state: _State | None = None
        self.commands = 0

    @property
    def tools(self) -> Sequence[Tool]:
        """The one tool."""
        return [ACT]

    def reset(self) -> None:
        """Start anew."""
        self._state, self.commands = None, 0

    def close(self) -> None:
        """Let go of the game."""
        self._state = None

    def step(self, name: str, arguments: str) -> Observation:
        """Do `act`; what is no command of this state is said in words."""
        from agentworld.tasks.bfcl_calls import call_from

        call = call_from(name, arguments)
        command = None if call.arguments is None else call.arguments.get("command")
        if name != "act" or not isinstance(command, str):
            return Observation('error: call act with {"command": "..."}')
        return self.act(command)

    def act(self, command: str) -> Observation:
        """Do one command; the game ends when it is won or lost, or with the last command that is allowed."""
        command = " ".join(command.lower().split())
        state = self._game()
        if state.over() or self.commands >= self._settings["most_commands"]:
            return Observation(_OVER, done=True)
        self.commands += 1
        done = command in ("look", "inventory") or state.do(command)
        said = self.look() if done else f"You cannot {command[:80]!r} now. You can: {', '.join(state.commands())}."
        if state.over():
            return Observation(f"{_OVER} You have {'won' if state.won else 'lost'}.", done=True)
        return Observation(said, done=self.commands >= self._settings["most_commands"])

    def look(self) -> str:
        """Where the player is, what is there, what they carry and can do."""
        return self._game().described()

    def check(self, answer: str | None) -> Score:
        """1 where the game is won, else 0."""
        state = self._game()
        details = {"won": state.won, "commands": self.commands, "left": state.left()}
        return Score(float(state.won), details)

    @property
    def objective(self) -> str:
        """What is to be done, in the game's words."""
        return str(self._game().game.objective)

    @property
    def walkthrough(self) -> list[str]:
        """Commands that win."""
        return list(self._game().game.metadata["walkthrough"])

    def _game(self) -> _State:
        if self._state is None:
            wanted = {name: self._settings[name] for name in ("seed", "rooms", "objects", "quest_length")}
            self._state = _State(_game(**wanted))
        return self._state


class _State:
    """How far a game has come."""

    def __init__(self, game: Any) -> None:
        package = _package()
        self.game = game
        self._progress = package.generator.game.GameProgression(game, track_quests=True)
        self._words = package.generator.inform7.Inform7Game(game)

    @property
    def won(self) -> bool:
        return bool(self._progress.completed)

    def over(self) -> bool:
        return self.won or bool(self._progress.failed)

    def left(self) -> int | None:
        """Commands of the way that still wins; None where none does."""
        policy = self._progress.winning_policy
        return None if policy is None else len(policy)

    def commands(self) -> list[str]:
        """What can be done now."""
        given = self._words.gen_commands_from_actions(self._progress.valid_actions)
        return sorted(each for each in set(given) if not each.startswith("examine "))

    def do(self, command: str) -> bool:
        """Whether that could be done."""
        given = self._words.gen_commands_from_actions(self._progress.valid_actions)
        for action, each in zip(self._progress.valid_actions, given, strict=True):
            if each.lower() == command:
                self._progress.update(action)
                return True
        return False

    def described(self) -> str:
        """The state as the player sees it: closed things hide what is in them."""
        facts = [(fact.name, *(self._name(each) for each in fact.arguments)) for fact in self._progress.state.facts]
        room = next(fact[2] for fact in facts if fact[:2] == ("at", "P"))
        here = sorted(fact[1] for fact in facts if fact[0] == "at" and fact[2] == room and fact[1] != "P")
        seen = []
        for thing in here:
            how = next((fact[0] for fact in facts if fact[1] == thing and fact[0] in _HOW), None)
            hidden = how in ("closed", "locked")
            holds = sorted(fact[1] for fact in facts if fact[0] in ("in", "on") and fact[2] == thing and not hidden)
            inside = f" with {', '.join(holds)}" if holds else ""
            seen.append(f"{thing}{f' ({how})' if how else ''}{inside}")
        carried = sorted(fact[1] for fact in facts if fact[0] == "in" and fact[2] == "I")
        lines = [
            f"You are in the {room}. You see: {'; '.join(seen) or 'nothing'}.",
            f"You carry: {', '.join(carried) or 'nothing'}.",
            f"You can: {', '.join(self.commands())}.",
        ]
        return "\n".join(lines)

    def _name(self, variable: Any) -> str:
        known = self.game.infos.get(variable.name)
        return str(variable.name if known is None or known.name is None else known.name)


@functools.lru_cache(maxsize=64)
def _made(seed: int, rooms: int, objects: int, quest_length: int) -> Any:
    package = _package()
    options = package.GameOptions()
    options.kb = package.generator.data.KnowledgeBase.default()  # Otherwise its files are parsed again for each game.
    options.seeds, options.nb_rooms, options.nb_objects, options.quest_length = seed, rooms, objects, quest_length
    return package.generator.make_game(options)


def _game(**settings: int) -> Any:
    with _turn:  # The generator is not made for threads.
        return _made(**settings)


def _package() -> Any:
    try:
        import textworld
        import textworld.generator.inform7
    except ImportError:
        raise ConfigError(
            "the task sets of textworld need that package", hint='Install it: pip install "agentworld[textworld]"'
        ) from None
    return textworld


_turn = threading.Lock()
