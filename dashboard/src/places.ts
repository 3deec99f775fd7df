/** The views with their places, in the order of the way that data goes, and the letter that leads there after `g`. */
export const VIEWS = [
  { path: "/", name: "Lifecycle", key: "l" },
  { path: "/collection", name: "Collection", key: "e" },
  { path: "/trajectories", name: "Trajectories", key: "t" },
  { path: "/curation", name: "Curation", key: "v" },
  { path: "/datasets", name: "Datasets", key: "d" },
  { path: "/consumption", name: "Consumption", key: "c" },
  { path: "/optimization", name: "Optimization", key: "o" },
  { path: "/runs", name: "Runs", key: "m" },
  { path: "/settings", name: "Settings", key: "k" },
] as const;
