"""The plug-in in verl's own agent-loop workers and V1 trainer, on engines that a script speaks for."""

import json
import shutil

import pytest

from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH
from tests.trainers_real.adapters.running import needs, run

# Importing verl and starting Ray take long on a busy machine.
pytestmark = [*needs("verl"), pytest.mark.timeout(600)]
MODEL = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 640,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
}
WORDS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
}


@pytest.fixture
def folder(tmp_path):
    """With a tiny model, of which only its tokenizer and its configuration are read."""
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(POCKET_TOKENIZER_PATH, model / "tokenizer.json")
    (model / "tokenizer_config.json").write_text(json.dumps(WORDS))
    (model / "config.json").write_text(json.dumps(MODEL))
    return tmp_path


def test_verls_worker_makes_its_batch_of_what_the_pool_has_on_record(folder):
    said = run("verl", "verl_agent_loop", folder)
    for place, (prompt, reply, logprobs, space) in enumerate(said["stored"]):
        assert said["prompts"][place][-len(prompt) :] == prompt
        assert said["responses"][place][: len(reply)] == reply
        assert said["mask"][place] == [1] * len(reply) + [0] * (32 - len(reply))
        assert said["logprobs"][place][: len(reply)] == pytest.approx(logprobs)
        assert space == "processed"
        assert sum(said["attention"][place]) == len(prompt) + len(reply)
    assert said["registered"] == "agentworld.verl_loop.agent_loop.AgentWorldLoop"
    assert sorted(said["scores"]) == [0.0, 1.0, 1.0, 1.0]
    assert said["leases"] == [True] * 4
    assert said["versions"] == [[3] * 4, [3] * 4]
    assert said["groups"] == ["verl:u0", "verl:u0", "verl:u1", "verl:u1"]
    assert said["loss"] == pytest.approx(said["by_hand"], abs=1e-6)
    assert said["outside"] == 0


def test_the_v1_trainer_takes_all_rows_and_acknowledges_with_checkpoints(folder):
    """Rollouts of a command that forgets: two rows each, both with the reward, one lease each."""
    said = run("verl", "verl_v1_trainer", folder)
    first, second = said["first"], said["second"]
    assert first["keys"] == [f"u{uid}_{session}_{part}" for uid in (0, 1) for session in (0, 1) for part in (0, 1)]
    assert sorted(first["scores"]) == [0.0] * 4 + [1.0] * 4
    assert sorted(first["parts"]) == [[0, 2]] * 4 + [[1, 2]] * 4
    assert [len(mask) for mask in first["masks"]] == first["lengths"]
    assert all(mask == [1] * len(mask) for mask in first["masks"])
    assert (set(first["versions"]), set(second["versions"])) == ({0}, {1})
    assert (said["before"], said["noted"]) == (["leased"] * 8, 4)
    assert said["saved"] == ["acked"] * 4 + ["leased"] * 4
    # The second step's work is in no checkpoint: it is given back. Its weights are those that spoke last.
    assert (said["after"], said["resumed"]) == (["acked"] * 4 + ["released"] * 4, [0, 4])
    assert said["policy"] == ["verl", 1]
    assert said["filter"] == ["reward", 1, 1024]
    assert sorted(said["trajectories"])[:2] == [["verl:u0", 0, 1.0], ["verl:u0", 1, 1.0]]
    assert len(said["trajectories"]) == 8


def test_the_gpu_example_runs_dry(folder):
    said = run("verl", "verl_gpu_script", folder)
    assert (said["prompts in file"], said["rows"]) == (8, 4)
    assert said["rewards"] == [0.0, 1.0]
    assert said["sampled tokens"] > 8
    assert said["largest advantage"] == pytest.approx(0.7071, abs=1e-3)
