/** What changed between two sequences: the shortest edit script (E. W. Myers, "An O(ND) Difference Algorithm and Its
 * Variations", Algorithmica 1, 1986), bounded, so that sequences with little in common end as one block replaced.
 */

export type Edit<T> = { kind: "same" | "gone" | "new"; items: T[] };

/** Differences that are looked for, at most: the cost is their square. */
const MOST_EDITS = 600;

export function diffOf<T>(before: readonly T[], after: readonly T[], equal: (one: T, other: T) => boolean = Object.is): Edit<T>[] {
  let head = 0;
  while (head < before.length && head < after.length && equal(before[head]!, after[head]!)) head++;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && equal(before[before.length - 1 - tail]!, after[after.length - 1 - tail]!)) tail++;
  const middle = script(before.slice(head, before.length - tail), after.slice(head, after.length - tail), equal);
  return joined([
    { kind: "same", items: after.slice(0, head) as T[] },
    ...middle,
    { kind: "same", items: after.slice(after.length - tail) as T[] },
  ]);
}

function script<T>(before: readonly T[], after: readonly T[], equal: (one: T, other: T) => boolean): Edit<T>[] {
  const [n, m] = [before.length, after.length];
  // Of each number of edits, how far each diagonal came; kept to walk back.
  const trace: Int32Array[] = [];
  const offset = MOST_EDITS + 1;
  let far = new Int32Array(2 * offset + 1);
  for (let edits = 0; edits <= Math.min(n + m, MOST_EDITS); edits++) {
    trace.push(far.slice());
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && far[offset + k - 1]! < far[offset + k + 1]!);
      let x = down ? far[offset + k + 1]! : far[offset + k - 1]! + 1;
      let y = x - k;
      while (x < n && y < m && equal(before[x]!, after[y]!)) {
        x++;
        y++;
      }
      far[offset + k] = x;
      if (x >= n && y >= m) return walked(before, after, trace, offset);
    }
  }
  return [
    { kind: "gone", items: [...before] },
    { kind: "new", items: [...after] },
  ];
}

function walked<T>(before: readonly T[], after: readonly T[], trace: readonly Int32Array[], offset: number): Edit<T>[] {
  const found: Edit<T>[] = [];
  let [x, y] = [before.length, after.length];
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const far = trace[edits]!;
    const k = x - y;
    const down = k === -edits || (k !== edits && far[offset + k - 1]! < far[offset + k + 1]!);
    const lastX = edits === 0 ? 0 : down ? far[offset + k + 1]! : far[offset + k - 1]!;
    const lastY = edits === 0 ? 0 : lastX - (down ? k + 1 : k - 1);
    while (x > lastX && y > lastY) {
      x--;
      y--;
      found.push({ kind: "same", items: [after[y]!] });
    }
    if (edits === 0) break;
    found.push(down ? { kind: "new", items: [after[lastY]!] } : { kind: "gone", items: [before[lastX]!] });
    [x, y] = [lastX, lastY];
  }
  return found.reverse();
}

/** Neighbours of one kind as one; of a change, what is gone before what is new. */
function joined<T>(edits: readonly Edit<T>[]): Edit<T>[] {
  const found: Edit<T>[] = [];
  let gone: T[] = [];
  let added: T[] = [];
  const flush = () => {
    if (gone.length > 0) found.push({ kind: "gone", items: gone });
    if (added.length > 0) found.push({ kind: "new", items: added });
    [gone, added] = [[], []];
  };
  for (const { kind, items } of edits) {
    if (items.length === 0) continue;
    if (kind === "gone") gone.push(...items);
    else if (kind === "new") added.push(...items);
    else {
      flush();
      const last = found[found.length - 1];
      if (last?.kind === "same") last.items.push(...items);
      else found.push({ kind, items: [...items] });
    }
  }
  flush();
  return found;
}
