import { expect, it } from "vitest";

import { GLOSSARY } from "./glossary";
import { VIEWS } from "./places";

const words = GLOSSARY.flatMap((chapter) => chapter.words);

it("has each word once, with what it means", () => {
  expect(new Set(words.map((each) => each.word)).size).toBe(words.length);
  expect(words.filter((each) => each.means.length < 20)).toEqual([]);
});

it("leads to views that are there", () => {
  const paths: readonly string[] = VIEWS.map((view) => view.path);
  expect(words.filter((each) => !paths.includes(each.path.split("?")[0]!))).toEqual([]);
});
