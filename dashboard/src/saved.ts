/** What this browser keeps for the lists: filters under names, and widths of columns. Never a key. */

export type SavedFilter = { name: string; query: string };

const FILTERS = "agentworld.filters";
const WIDTHS = "agentworld.widths";
const MOST = 50;
/** How keys begin; what may hold one is not kept. */
const KEY = /aw-[a-z]{1,3}-/i;

function read(name: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(name) ?? "null");
  } catch {
    // Another page of this origin, or a person, wrote something else there.
    return null;
  }
}

export function savedFilters(): SavedFilter[] {
  const found = read(FILTERS);
  if (!Array.isArray(found)) return [];
  return found.filter((each): each is SavedFilter => typeof each?.name === "string" && typeof each?.query === "string").slice(0, MOST);
}

/** The filters with this one among them, the latest first; null where it was not kept. */
export function saveFilter(filter: SavedFilter): SavedFilter[] | null {
  if (KEY.test(filter.name) || KEY.test(decodeURIComponent(filter.query))) return null;
  return keep([filter, ...savedFilters().filter((each) => each.name !== filter.name)].slice(0, MOST));
}

export function forgetFilter(name: string): SavedFilter[] {
  return keep(savedFilters().filter((each) => each.name !== name)) ?? [];
}

function keep(filters: SavedFilter[]): SavedFilter[] | null {
  try {
    localStorage.setItem(FILTERS, JSON.stringify(filters));
    return filters;
  } catch {
    return null;
  }
}

export function savedWidths(): Record<string, number> {
  const found = read(WIDTHS);
  if (typeof found !== "object" || found === null) return {};
  return Object.fromEntries(Object.entries(found).filter(([, width]) => typeof width === "number" && width >= 40 && width <= 1000));
}

export function saveWidths(widths: Record<string, number>): void {
  try {
    localStorage.setItem(WIDTHS, JSON.stringify(widths));
  } catch {
    // They hold until the page is left.
  }
}
