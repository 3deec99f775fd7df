import { expect, it } from "vitest";

import { holdsAll, offersAt, placeOf, quoted, toggledAll, tokensOf, type Field } from "./where";

const field = (name: string, kind: Field["kind"], more: Partial<Field> = {}): Field => ({ name, kind, doc: `About ${name}.`, keys: null, plain: true, indexed: false, ...more });
const FIELDS = [
  field("status", "text", { indexed: true }),
  field("staleness", "number"),
  field("reward", "number", { keys: "NAME" }),
  field("label", "json", { keys: "NAME", plain: false }),
  field("created_at", "time"),
  field("complete", "boolean"),
  field("logprobs", "presence"),
];
const VALUES = { status: ["finished", "it's"] };

/** The offers where `|` stands. */
const at = (text: string) => offersAt(text.replace("|", ""), text.indexOf("|"), FIELDS, VALUES);
const texts = (text: string) => at(text).offers.map((each) => each.text);

it("offers what can stand at a place", () => {
  expect(texts("sta|")).toEqual(["status", "staleness"]);
  expect(texts("complete and sta|")).toEqual(["status", "staleness"]);
  expect(texts("(sta|")).toEqual(["status", "staleness"]);
  expect(texts("lab|")).toEqual(["label."]);
  expect(texts("log|")).toEqual([]);
  expect(texts("has log|")).toEqual(["logprobs"]);
  expect(texts("status |")).toContain("==");
  expect(texts("reward |").slice(0, 2)).toEqual([">=", "<="]);
  expect(texts("reward.tests |")[0]).toBe(">=");
  expect(texts("complete |")).toEqual(["and", "or"]);
  expect(texts("status == |")).toEqual(["'finished'", "'it\\'s'"]);
  expect(texts("status == 'fi|")).toEqual(["'finished'"]);
  expect(texts("status in ('finished', |")).toEqual(["'finished'", "'it\\'s'"]);
  expect(texts("status in ('finished' |")).toEqual([",", ")"]);
  expect(texts("created_at > |")[0]).toBe("now - 1h");
  expect(texts("reward >= 0.5 |")).toEqual(["and", "or"]);
  expect(texts("reward is |")).toEqual(["null", "not null"]);
});

it("says what an offer takes the place of, and offers nothing for what is whole", () => {
  expect(at("complete and sta|x == 1")).toMatchObject({ from: 13, to: 17 });
  expect(at("complete and |")).toMatchObject({ from: 13, to: 13 });
  expect(texts("status == 'finished'|")).toEqual([]);
  expect([at("sta|").half, at("complete|").half, at("status == fini|").half, at("complete |").half, at("created_at > now|").half]).toEqual([true, false, true, false, false]);
  expect(at("sta|").offers[0]!.says).toBe("About status. (indexed)");
});

it("finds the place of an error in characters beyond the basic plane", () => {
  expect(placeOf("unexpected '!' at position 3 of the where expression", "'😀'!")).toBe(4);
  expect(placeOf("it takes too long", "x")).toBeNull();
});

it("puts conditions to a filter and takes them away", () => {
  const some = "status == 'finished'";
  const toggled = (source: string, ...conditions: string[]) => toggledAll(source, conditions);
  expect(toggled("", some)).toBe(some);
  expect(toggled("reward > 0", some)).toBe(`reward > 0 and ${some}`);
  expect(toggled(`reward > 0 and ${some} and open`, some)).toBe("reward > 0 and open");
  expect(toggled("open or ready", some)).toBe(`(open or ready) and ${some}`);
  expect(toggled("(open or ready) and complete", some)).toBe(`(open or ready) and complete and ${some}`);
  expect(toggled(some, some)).toBe("");
  const range = ["reward >= 0.5", "reward < 1"];
  expect(toggled("open and reward < 1", ...range)).toBe("open and reward >= 0.5 and reward < 1");
  expect(toggled("open and reward >= 0.5 and reward < 1", ...range)).toBe("open");
  expect(holdsAll(`reward > 0 and ${some}`, [some])).toBe(true);
  expect(holdsAll("open or ready", ["open"])).toBe(false);
  expect(toggled("agent == 'a and b'", "agent == 'a and b'")).toBe("");
});

it("quotes text so that it stays one token", () => {
  for (const text of ["it's", "a\\", "line\nbreak\t", '"', "' or '1' == '1"]) {
    const tokens = tokensOf(`agent == ${quoted(text)} and open`);
    expect(tokens.map((each) => each.kind)).toEqual(["name", "operator", "text", "name", "name"]);
  }
});
