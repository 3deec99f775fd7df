/** What was done and can be taken back, the latest first. */

export type Done = { says: string; undo: () => Promise<unknown> };

export class UndoStack {
  private done: Done[] = [];

  get latest(): Done | null {
    return this.done[this.done.length - 1] ?? null;
  }

  push(one: Done): void {
    this.done.push(one);
  }

  /** Take the latest back; where that fails it stays, to be tried again. */
  async back(): Promise<Done | null> {
    const one = this.latest;
    if (one === null) return null;
    await one.undo();
    this.done = this.done.filter((each) => each !== one);
    return one;
  }
}
