"""The dry run of the GPU example, as its own command, on a tiny model that has no weights."""

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path

import given

EXAMPLE = Path(__file__).parents[4] / "examples" / "verl_vllm"


def main():
    for name in ("train.toml", "loop.toml"):
        text = (EXAMPLE / name).read_text()
        text = text.replace('"Qwen/Qwen3-0.6B"', json.dumps(str(given.FOLDER / "model")))
        text = text.replace("sqlite:///verl.db", f"sqlite:///{given.FOLDER}/verl.db")
        text = text.replace("prompts = 512", "prompts = 8").replace("held_out = 64", "held_out = 4")
        (given.FOLDER / name).write_text(text.replace("rollouts = 8", "rollouts = 2"))
    sys.argv = ["train.py", str(given.FOLDER / "train.toml"), "--dry-run"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(EXAMPLE / "train.py"), run_name="__main__")
    given.say(json.loads(said.getvalue().splitlines()[-1]))


if __name__ == "__main__":
    main()
