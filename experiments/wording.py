"""The words of docs/experiments.md that are the same whatever was found."""

from __future__ import annotations

TITLES = {
    "base": "The base cell",
    "method": "Methods",
    "curation": "Curation",
    "staleness": "Staleness",
    "runtime": "Runtimes",
    "task set": "Task sets",
    "merging": "Merging",
    "tokens": "Token-in against re-tokenised text",
}
"""Of each axis, in the order of the page."""

ABOUT = {
    "base": "What the others differ from in one thing.",
    "method": "All with the base's learning rate and batches: nothing was tuned for any of them but the base.",
    "curation": (
        "Rewards are turned round once the rollouts have been judged, by seed, group and index. The policy of curation "
        "knows no reference: it keeps back rollouts that are rewarded although their answer is not what the tool said "
        "last, and the reverse. So it also keeps back rollouts that asked the tool the wrong thing and believed it, "
        "whose reward of 0 is right. Evaluations are never corrupted."
    ),
    "staleness": (
        "The weights that sample are so many versions behind those that are trained. With a correction, the clipped "
        "ratio is to the log-probabilities at sampling; without one it is to those of the weights as they are before "
        "the batch, as if these had sampled."
    ),
    "runtime": "The same tasks by other agents, each evaluated by itself.",
    "task set": "Each has its own expert and start, so that its gain says nothing beside the base's.",
    "merging": 'The base merges where that costs less (`merging = "auto"`).',
    "tokens": (
        "What is trained on are the ids that the chat template makes of the messages, in place of those that were "
        "sampled. The log-probabilities at sampling do not fit these, so ratios are to those of the present weights."
    ),
}

OPENING = (
    "From one base cell one thing is varied at a time, with {seeds} seeds each. These are small runs of a model of a "
    "million parameters on two CPU cores: {iterations} batches of {groups} tasks x {rollouts} rollouts, "
    "`--minutes {minutes:g}`. `python -m experiments page` writes this page from the files in `experiments/results/`, "
    "and a test compares the two."
)
READING = (
    "*Gain*: the share of held-out tasks that pass after training, less the share before. *Beside base*: how much more "
    "the cell gained than the base, on the same seeds and tasks. In brackets 95% intervals; bold: all of it is on one "
    "side of 0. *Sampled*: "
    "the mean reward of the rollouts of the first batch and of the last, at temperature 1, where held-out tasks are "
    "tried at 0; the two batches have other tasks."
)
"""What the table's columns mean."""

HOW = (
    "The model is `pocket`. It begins as the imitation of a scripted expert that went through the gateway and is right "
    "every time; but on 40% of the tasks the expert answers at once instead of working with the tool, which a small "
    "model cannot do. All cells and seeds of a task set begin with the same weights, which is checked. A run samples "
    "{groups} tasks x {rollouts} rollouts through gateway and engine, token-in, leases them from the pool, trains on "
    "them with `agentworld.trainers`, publishes the new weights to the engine, and again, batch by batch. Engine, "
    "gateway, agents and trainer are processes on loopback. Before and after, the agent does the same {tasks} held-out "
    "tasks once each at temperature 0.",
    "Intervals are paired by task, over seeds and tasks as two crossed samples: with the mean squares A of S seeds, B "
    "of n tasks and E of the rest, the variance of the mean is (A + B - E) / (S n) (two-way random model, Searle, "
    "Casella and McCulloch 1992, chapter 4), and the interval is mean ± t times its root, with Satterthwaite's degrees "
    "of freedom (doi:10.2307/3002019). With one seed it is the t interval over tasks, which says nothing of other "
    "seeds. `experiments/statistics.py` has the details.",
    "Learning rate and batch size were chosen among three settings by what the base with seed 0 came to on these "
    "held-out tasks, in runs of 8 batches, which flatters the base a little. As all runs of one number of batches "
    "begin with the same weights, no interval says anything of other starts, and these differ when they are made "
    "again: four starts of `sums` passed 0.535, 0.595, 0.735 and 0.795 of the held-out tasks; the first is that of the "
    "runs of 32 batches, the second that of 8. How much is gained hangs on the start: six runs of 32 batches from "
    "0.735, three each of `dr-grpo` and `rloo`, gained 0.030 to 0.105, 0.059 in the mean, where these cells gain "
    "0.27 to 0.29 here. They were done again from 0.535, where the base had its runs and there is more room, and are "
    "not in the tables. There are many intervals here: of twenty whose true value is 0, one is "
    "expected to leave it out.",
    "    python -m experiments list\n"
    "    python -m experiments run [CELL or AXIS ...] --minutes {minutes:g}\n"
    "    python -m experiments page\n"
    '    make experiments ARGS="[CELL or AXIS ...] --minutes {minutes:g}"    # installs, runs, writes the page',
    "A run that was interrupted goes on where it was, and what has a result is not run again. `--minutes` counts "
    "batches, {per_minute} a minute, so that load changes nothing in what is computed; results of each number of "
    "batches have a folder of their own, and are never compared with others. Seeds decide tasks, sampling "
    "and the order of updates; but which sequences the engine computes together depends on when they come, which "
    "changes last digits of log-probabilities and now and then a token, so that a run done again is not the same bit "
    "for bit. The text games need `textworld`; the runtime `langgraph` needs `langgraph` and `langchain-openai`, or "
    "`AGENTWORLD_FRAMEWORK_PYTHON` names a Python that has them.",
)
"""Paragraphs, with the numbers of the plan to fill in."""
