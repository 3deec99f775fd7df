"""The formulas of the papers as loops over paths (lists of steps) in plain Python: what credit is compared with."""


def paths(rollout):
    """Every path from a root to a leaf, as a list of steps."""
    parents = [int(parent) for parent in rollout.tree.parents]
    found = []
    for step in range(len(parents)):
        if step in parents:
            continue
        path = []
        while step >= 0:
            path.insert(0, step)
            step = parents[step]
        found.append(path)
    return found


def ends(rollout, where):
    if where == "last_step":
        return [rollout.last] if len(rollout.lengths) else []
    return [path[-1] for path in paths(rollout)]


def rewards(rollout, where):
    """r_s, the trajectory's reward included."""
    return [
        float(rollout.step_rewards[step]) + (rollout.reward if step in ends(rollout, where) else 0.0)
        for step in range(len(rollout.lengths))
    ]


def mean(numbers):
    return sum(numbers) / len(numbers)


def normalised(number, numbers, by_std=True):
    centre = mean(numbers)
    if not by_std:
        return number - centre
    return (number - centre) / (mean([(other - centre) ** 2 for other in numbers]) ** 0.5 + 1e-6)


def over_paths(rollout, on_path):
    """The mean over the paths through each step of what `on_path(path)` gives each of its steps."""
    sums = [[] for _ in rollout.lengths]
    for path in paths(rollout):
        for step, number in zip(path, on_path(path), strict=True):
            sums[step].append(number)
    return [mean(numbers) for numbers in sums]


def advantages_of_list(reward, value, after, gamma, lam):
    """Sum over l of (gamma lam)^l delta_{t+l}, for each t of a list."""
    if not reward:
        return []
    following = [*value[1:], after]
    delta = [r + gamma * v_next - v for r, v, v_next in zip(reward, value, following, strict=True)]
    return [
        sum((gamma * lam) ** (later - t) * delta[later] for later in range(t, len(delta))) for t in range(len(delta))
    ]


def after_end(rollout, path):
    return 0.0 if rollout.bootstrap is None else float(rollout.bootstrap[path[-1]])


def returns(rollout, gamma, where="every_leaf"):
    """Sum over k of gamma^(k-t) r_k on each path."""
    r = rewards(rollout, where)
    return over_paths(
        rollout,
        lambda path: [sum(gamma ** (k - t) * r[path[k]] for k in range(t, len(path))) for t in range(len(path))],
    )


def gae(rollout, gamma, lam, where="every_leaf"):
    r = rewards(rollout, where)
    return over_paths(
        rollout,
        lambda path: advantages_of_list(
            [r[step] for step in path],
            [float(rollout.values[step][0]) for step in path],
            after_end(rollout, path),
            gamma,
            lam,
        ),
    )


def gae_of_tokens(rollout, gamma, lam, where="every_leaf", zero=False):
    """Of each step, of each token: the mean over the paths through it."""
    r = rewards(rollout, where)
    sums = [[[] for _ in range(length)] for length in rollout.lengths]
    for path in paths(rollout):
        tokens = [(step, token) for step in path for token in range(rollout.lengths[step])]
        earned = [0.0] * len(tokens)
        seen = 0
        for step in path:
            seen += rollout.lengths[step]
            if seen:
                earned[seen - 1] += r[step]
        value = [0.0 if zero else float(rollout.values[step][token]) for step, token in tokens]
        after = 0.0 if zero else after_end(rollout, path)
        for (step, token), number in zip(tokens, advantages_of_list(earned, value, after, gamma, lam), strict=True):
            sums[step][token].append(number)
    return [[mean(numbers) for numbers in step] for step in sums]


def gigpo(rollouts, omega, gamma, by_std=True, per_role=False, where="every_leaf"):
    """A_E + omega A_S (arXiv:2505.10978)."""
    totals, to_go = [], []
    for each in rollouts:
        r = rewards(each, where)
        sums = [sum(r[step] for step in path) for path in paths(each)]
        totals.append(mean(sums) if sums else each.reward)
        to_go.append(returns(each, gamma, where))

    def same(mine, s, yours, t):
        return (
            mine.group == yours.group
            and mine.states[s] == yours.states[t]
            and (not per_role or mine.roles[s] == yours.roles[t])
        )

    found = []
    for index, mine in enumerate(rollouts):
        credits = []
        for s in range(len(mine.lengths)):
            group = [
                total
                for yours, total in zip(rollouts, totals, strict=True)
                if yours.group == mine.group and (not per_role or mine.roles[s] in yours.roles)
            ]
            anchored = [
                to_go[other][t]
                for other, yours in enumerate(rollouts)
                for t in range(len(yours.lengths))
                if same(mine, s, yours, t)
            ]
            episode = normalised(totals[index], group, by_std)
            credits.append(episode + omega * normalised(to_go[index][s], anchored, by_std))
        found.append(credits)
    return found


def progress(rollout, initial, terminal, where="every_leaf"):
    value = [float(number) for number in rollout.step_rewards]
    if terminal == "replace":
        value = [rollout.reward if step in ends(rollout, where) else number for step, number in enumerate(value)]
    found = [0.0] * len(value)
    for path in paths(rollout):
        for place, step in enumerate(path):
            found[step] = value[step] - (value[path[place - 1]] if place else initial)
    if terminal == "add":
        for step in set(ends(rollout, where)):
            found[step] += rollout.reward
    return found


def spread(rollout, advantage, how, gamma, where="every_leaf"):
    if how == "uniform":
        return [advantage] * len(rollout.lengths)
    last = ends(rollout, where)
    if how == "last":
        return [advantage if step in last else 0.0 for step in range(len(rollout.lengths))]
    return over_paths(
        rollout,
        lambda path: [
            sum(gamma ** (k - t) * advantage for k in range(t, len(path)) if path[k] in last) for t in range(len(path))
        ],
    )


def runs_of_roles(rollout):
    """Of each step: the top of the run of its role that it belongs to."""
    tops = []
    for step in range(len(rollout.lengths)):
        top = step
        while rollout.tree.parents[top] >= 0 and rollout.roles[rollout.tree.parents[top]] == rollout.roles[step]:
            top = int(rollout.tree.parents[top])
        tops.append(top)
    return tops
