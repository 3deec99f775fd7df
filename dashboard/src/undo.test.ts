import { expect, test } from "vitest";

import { UndoStack } from "./undo";

test("the latest is taken back first, and stays where that fails", async () => {
  const stack = new UndoStack();
  const undone: string[] = [];
  let fails = true;
  stack.push({ says: "first", undo: async () => undone.push("first") });
  stack.push({
    says: "second",
    undo: async () => {
      if (fails) throw new Error("away");
      undone.push("second");
    },
  });
  await expect(stack.back()).rejects.toThrow("away");
  expect(stack.latest?.says).toBe("second");
  fails = false;
  expect((await stack.back())?.says).toBe("second");
  await stack.back();
  expect(undone).toEqual(["second", "first"]);
  expect(await stack.back()).toBe(null);
});
