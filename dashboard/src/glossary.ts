/** The words that the page uses, each with what it means and where it is seen. */

export type Word = { word: string; means: string; seen: string; path: string };
export type Chapter = { name: string; words: readonly Word[] };

export const GLOSSARY: readonly Chapter[] = [
  {
    name: "What is collected",
    words: [
      { word: "call", means: "One request to a model as the gateway saw it, answered or failed. Also called exchange. n choices of one call are n steps.", seen: "Collection", path: "/collection" },
      { word: "step", means: "One sampled reply with the prompt that it answers: ids, messages, log-probabilities, and the policy that spoke.", seen: "the page of a trajectory", path: "/trajectories" },
      { word: "trajectory", means: "One run of an agent from its first call to its end: its steps, its task, its rewards.", seen: "Trajectories", path: "/trajectories" },
      { word: "task", means: "One problem with its prompt and, where there is one, its reference. A task set is a list of them.", seen: "Runs", path: "/runs" },
      { word: "group", means: "The rollouts of one task, which methods such as GRPO compare with one another.", seen: "Compare, in Curation", path: "/curation?tab=compare" },
      { word: "channel", means: "A part of the pool that is kept apart, such as train or val. Keys, rules and consumers may be for one alone.", seen: "Lifecycle", path: "/" },
      { word: "branch, fork", means: "A fork is a step that does not simply go on from the one before it, and begins a branch. Its reason is named: a retry, a sub-agent, a rewritten history, a template that changes.", seen: "the page of a trajectory", path: "/trajectories" },
      { word: "policy", means: "Which weights spoke: model, run and version. Versions go up as a trainer publishes new weights.", seen: "Lifecycle", path: "/" },
      { word: "run", means: "What was collected, or trained, under one name.", seen: "Runs", path: "/runs" },
    ],
  },
  {
    name: "What is said of it",
    words: [
      { word: "reward", means: "A named number with its source, on a trajectory or a step. The one named reward decides whether it is ready. No reward is not a reward of 0.", seen: "Runs", path: "/runs" },
      { word: "label", means: "A named value that people, checks or rules set, to filter and decide by.", seen: "Labels and checks, in Curation", path: "/curation?tab=checks" },
      { word: "feedback", means: "What people say: a rating, a label, a comment, a correction (what should have been said), a comparison (which of two is better).", seen: "Curation", path: "/curation" },
      { word: "annotation", means: "A named array on a step, such as a teacher's log-probabilities, one value for each token.", seen: "tokens, on the page of a trajectory", path: "/trajectories" },
      { word: "rule", means: "What is to happen to what matches a filter: exclude it, or ask a person. Rules are tried before they are in force.", seen: "Rules, in Curation", path: "/curation?tab=rules" },
      { word: "review", means: "A trajectory that waits for a person to accept or reject it.", seen: "Curation", path: "/curation" },
    ],
  },
  {
    name: "Whether it is fit for training",
    words: [
      { word: "open", means: "The run has not ended.", seen: "Collection", path: "/collection" },
      { word: "complete", means: "It has ended, nothing excludes it, and it has no reward. Methods that need none, such as SFT, are served it; for others it waits. As a filter, complete also finds what is ready.", seen: "Trajectories", path: "/trajectories?where=readiness%20%3D%3D%20%27complete%27" },
      { word: "ready", means: "It has ended, has a reward, and nothing excludes it.", seen: "Trajectories", path: "/trajectories?where=ready" },
      { word: "excluded", means: "It is not served, and says why: it failed, a rule or a person took it out, or it contradicts itself.", seen: "Trajectories", path: "/trajectories?where=excluded" },
      { word: "quarantined", means: "Excluded as what was recorded contradicts itself, such as ids and log-probabilities that differ in number.", seen: "Trajectories", path: "/trajectories?where=excluded" },
      { word: "dead letter", means: "A record that could not be stored, kept with the reason.", seen: "Errors, in Collection", path: "/collection?tab=errors" },
    ],
  },
  {
    name: "How it is used",
    words: [
      { word: "consumer", means: "Who takes batches under one name, such as a trainer. Each sees everything that it asked for.", seen: "Consumption", path: "/consumption" },
      { word: "method", means: "How is trained: SFT, DPO, GRPO and others. Each needs other things of the data.", seen: "Consumption", path: "/consumption" },
      { word: "unit", means: "What is handed out as one: a step, a trajectory or a group.", seen: "Consumption", path: "/consumption" },
      { word: "batch, lease", means: "Units that a consumer has for a time. If it neither acknowledges nor extends the lease, they go back.", seen: "Consumption", path: "/consumption" },
      { word: "acknowledged", means: "Trained on, and in a checkpoint: it is not handed to that consumer again.", seen: "Consumption", path: "/consumption" },
      { word: "staleness", means: "How many versions a sample is behind the policy that speaks now.", seen: "Consumption", path: "/consumption" },
      { word: "poisoned", means: "Handed out time and again and never acknowledged, so set aside until somebody looks.", seen: "Consumption", path: "/consumption" },
      { word: "dataset version", means: "A selection that never changes, named by a digest, with where each row comes from.", seen: "Datasets", path: "/datasets" },
      { word: "lineage", means: "Which version goes on from which.", seen: "Datasets", path: "/datasets" },
      { word: "layout", means: "The form that rows have as a file: one of SFT, preferences, groups and others.", seen: "Datasets", path: "/datasets" },
      { word: "token tree", means: "The sequences of a group or batch with what they share written once. The ratio is how many tokens there are flat for one merged.", seen: "Optimization", path: "/optimization" },
      { word: "micro-batch", means: "What a trainer computes at once. Sharing between two of them is lost.", seen: "Optimization", path: "/optimization" },
    ],
  },
];
