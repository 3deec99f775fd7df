/** Steps of a trajectory as a tree of branches: a step goes on from its parent, the first to do so on its branch. */

export type Branching = {
  step_id: string;
  parent_step_id?: string | null;
  fork_reason?: string | null;
};

export type Placed<T> = { step: T; branch: number; fork: string | null };

/** Each step with the number of its branch, in the order in which they came. A step whose parent has been gone on from
 * before, or that has none while others came before it, begins a branch.
 */
export function branchesOf<T extends Branching>(steps: readonly T[]): Placed<T>[] {
  const tips = new Map<string, number>();
  const branchOf = new Map<string, number>();
  let branches = 0;
  return steps.map((step) => {
    const parent = step.parent_step_id ?? null;
    const going = parent === null ? undefined : tips.get(parent);
    const branch = going ?? branches++;
    if (going !== undefined) tips.delete(parent!);
    tips.set(step.step_id, branch);
    branchOf.set(step.step_id, branch);
    const fork = going === undefined && branch > 0 ? (step.fork_reason ?? "fork") : (step.fork_reason ?? null);
    return { step, branch, fork };
  });
}
