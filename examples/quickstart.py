"""The whole path in one file: an agent talks to the gateway, its work is judged, a trainer takes what is fit.

    agentworld serve --upstream http://127.0.0.1:8000 --model my-model     # in front of vLLM, SGLang, ...
    python examples/quickstart.py

Left out: groups of rollouts in parallel (`agentworld run`), whole agents as commands (`agentworld exec`), training.
"""

import os

import agentworld as aw
from agentworld.records import new_id

factory = aw.connect(os.environ.get("AGENTWORLD_URL", "http://127.0.0.1:8400"))
GROUP = new_id("grp")

# Agent: two rollouts of one task. Each call through the gateway is a step in the pool.
for index in range(2):
    task = {"task_id": "capital", "reference": "Paris"}
    with factory.trajectory(task=task, group=GROUP, group_size=2, rollout_index=index, agent="quickstart") as run:
        messages = [{"role": "user", "content": "What is the capital of France? One word."}]
        messages.append(run.chat(messages, temperature=1.0).message)
        messages.append({"role": "user", "content": "Are you sure? Answer with the city's name alone."})
        answer = run.chat(messages, temperature=1.0).message.text
        # Judge: any agent may be any program; here its own loop says how well it did.
        run.reward(float(task["reference"] in answer), source="quickstart")

# Curate: look at what there is, and say what is fit for training.
for trajectory in factory.list_trajectories(group_id=GROUP).items:
    print(f"{trajectory.trajectory_id}  {trajectory.step_count} steps  reward {trajectory.reward}")

# Batch: a consumer leases whole groups, and acknowledges them once its checkpoint holds what it learned.
consumer = factory.consumer("quickstart")
batch = consumer.lease(aw.BatchSpec(method="grpo", groups=1, rollouts=2, where="step_count >= 2"))
if batch is None:
    raise SystemExit("No group is ready: look at `agentworld trajectories list`")
for item in batch.items:
    for rollout in item.trajectories:
        for step in rollout.steps:
            print(f"{step.step_id}  {len(step.prompt_ids)} prompt ids, {len(step.response_ids)} sampled, {step.policy}")
batch.ack()
