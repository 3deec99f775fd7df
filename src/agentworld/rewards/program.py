"""Programs as evaluators: the task's tests, or a command of yours, kept apart from this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

import msgspec

from agentworld.records import BatchTrajectory, digest, exact_json
from agentworld.rewards.answers import AnswerPlace, extract_answer
from agentworld.rewards.contents import digest_of_contents
from agentworld.rewards.isolation.sandbox import ENVIRONMENT, SYSTEM, Limits, Outcome, run_isolated
from agentworld.rewards.printed import read_printed
from agentworld.rewards.protocol import EvaluationError, EvaluatorKind, Verdict, last_answer, last_step

_KEPT = 2000
_FILES_BYTES = 64 << 20


class Program(EvaluatorKind, frozen=True, kw_only=True):
    """Runs `command` in a scratch folder and takes its word.

    The folder holds the files of `folder` (on this machine), of the task's field `task_files` ({path: text}), and the
    answer as `answer_file`. The command gets the trajectory as JSON on its stdin: trajectory_id, task, status, answer
    and messages. `result`: `exit` is 1 for code 0 and 0 for 1 to 125; `printed` is the number, or the JSON with
    `reward`, of its last line. A signal, a code from 126 on, too much output and a time-out are failed evaluations;
    `on_timeout`: the value in place of the last, where it is the agent's own code that runs.

    `isolation`: `sandbox` is bubblewrap or namespaces, without network, and where neither works the evaluation fails;
    `none` runs it as you, with your files and network. Which it was is in the details. `readable`: further folders that
    the sandbox shows, read only; root's sandbox is another user, who has to be allowed to read them.
    `environment`: variables; it has no others but PATH, HOME, LANG and TMPDIR.
    """

    command: tuple[str, ...]
    folder: str | None = None
    task_files: str | None = None
    answer_file: str | None = None
    answer: AnswerPlace = "whole"
    revision: ClassVar[int] = 2
    result: Literal["exit", "printed"] = "exit"
    on_timeout: float | None = None
    isolation: Literal["sandbox", "none"] = "sandbox"
    readable: tuple[str, ...] = ()
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError("command is empty")
        if self.folder is not None and not Path(self.folder).is_dir():
            raise ValueError(f"folder {self.folder} is no folder")

    @property
    def configuration(self) -> Any:
        """The settings, and what `folder`, `readable` and the files of `command` hold, as that decides as well."""
        own = self._own_files()
        parts = [part for name, data in own.items() for part in (name.encode(), data)]
        return {
            "settings": super().configuration,
            "files": {name: len(data) for name, data in own.items()},
            "digest": digest(*parts).hex(),
            "read": digest_of_contents([*self._named_files(), *self.readable]),
        }

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """The program's word."""
        answer = extract_answer(last_answer(subject), self.answer)
        outcome = run_isolated(
            self.command,
            files=self._files(subject, answer),
            stdin=_described(subject, answer),
            readable=self.readable,
            environment=self.environment,
            limits=self.limits,
            mechanism="none" if self.isolation == "none" else None,
        )
        details = {
            "isolation": outcome.mechanism,
            "code": outcome.code,
            "stdout": outcome.stdout[-_KEPT:],
            "stderr": outcome.stderr[-_KEPT:],
        }
        value, further = self._value(outcome)
        return Verdict({self.reward: value}, {**details, **further})

    def _value(self, outcome: Outcome) -> tuple[float, dict[str, Any]]:
        if outcome.ending == "timed_out":
            if self.on_timeout is not None:
                return self.on_timeout, {"timed_out": True}
            raise EvaluationError(f"{self.name}: the program did not end within {self.limits.seconds:g} s")
        if outcome.ending == "too_much_output":
            raise EvaluationError(f"{self.name}: the program wrote over {self.limits.output_mb} MiB and was ended")
        if outcome.signal is not None:
            raise EvaluationError(f"{self.name}: the program was ended by signal {outcome.signal}{_said(outcome)}")
        code = outcome.code or 0
        if code > 125 or (code and self.result == "printed"):
            raise EvaluationError(f"{self.name}: the program ended with code {code}{_said(outcome)}")
        if self.result == "exit":
            return float(code == 0), {}
        try:
            printed = read_printed(outcome.stdout)
        except ValueError as error:
            raise EvaluationError(f"{self.name}: {error}") from None
        return printed.value, {"printed": printed.details} if printed.details else {}

    def _files(self, run: BatchTrajectory, answer: str | None) -> dict[str, str | bytes]:
        files: dict[str, str | bytes] = {**self._own_files()}
        if self.task_files is not None:
            of_task = self._of_task(run)
            both = sorted(name for name in of_task if PurePosixPath(name).as_posix() in files)
            if both:
                raise EvaluationError(
                    f"{self.name}: the task brings {both[0]!r}, which is in `folder` too",
                    path=f"task.{self.task_files}",
                    hint="Rename one of them: what is on this machine is never replaced by what a task brings",
                )
            files.update(of_task)
        if self.answer_file is not None:
            files[self.answer_file] = answer or ""
        if sum(map(len, files.values())) > _FILES_BYTES:
            raise EvaluationError(f"{self.name}: the files have over {_FILES_BYTES >> 20} MiB")
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
                raise EvaluationError(f"{self.name}: {name[:100]!r} is no path within the scratch folder")
        return files

    def _of_task(self, run: BatchTrajectory) -> Mapping[str, str]:
        task = run.trajectory.task or {}
        found = task.get(self.task_files or "", (task.get("settings") or {}).get(self.task_files))
        if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
            raise EvaluationError(
                f"{self.name}: the task of {run.trajectory.trajectory_id} has no files in {self.task_files!r}",
                path=f"task.{self.task_files}",
                hint="Give the task, or its settings, an object of texts by path",
            )
        return found

    def _own_files(self) -> dict[str, bytes]:
        if self.folder is None:
            return {}
        root = Path(self.folder)
        found: dict[str, bytes] = {}
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found[path.relative_to(root).as_posix()] = path.read_bytes()
        return found

    def _named_files(self) -> list[str]:
        """Files of this machine that the command names, but for the system's programs and Python."""
        program = shutil.which(self.command[0], path=self.environment.get("PATH", ENVIRONMENT["PATH"]))
        named = [each for each in (program, *self.command[1:]) if each and os.path.isabs(each) and os.path.isfile(each)]
        return [each for each in named if not _of_system(each)]


def _of_system(path: str) -> bool:
    if os.path.realpath(path) == os.path.realpath(sys.executable):
        return True
    local = path.startswith("/usr/local/") and not os.path.basename(path).startswith("python")
    return not local and any(PurePosixPath(path).is_relative_to(folder) for folder in SYSTEM)


def _described(run: BatchTrajectory, answer: str | None) -> bytes:
    step = last_step(run)
    messages = [*(step.prompt_messages or ()), step.response_message] if step is not None else []
    record = run.trajectory
    return exact_json.encode(
        {
            "trajectory_id": record.trajectory_id,
            "task": record.task,
            "status": record.status,
            "answer": answer,
            "messages": msgspec.to_builtins(messages),
        }
    )


def _said(outcome: Outcome) -> str:
    text = outcome.stderr.strip() or outcome.stdout.strip()
    return f": {text[-300:]}" if text else ""
