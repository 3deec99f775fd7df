import { describe, expect, it } from "vitest";

import { FrameReader } from "./api/events";

const stream = ": hello\nid: 7\nevent: step.appended\ndata: {\"a\":1}\n\n: ping\r\nid: 8\r\ndata: x\r\ndata: y\r\n\r\n";
const frames = [
  { id: "7", kind: "step.appended", data: '{"a":1}' },
  { id: "8", kind: "message", data: "x\ny" },
];

describe("server-sent events", () => {
  it("are the same however the text is cut", () => {
    for (let at = 0; at <= stream.length; at++) {
      const reader = new FrameReader();
      expect([...reader.read(stream.slice(0, at)), ...reader.read(stream.slice(at))]).toEqual(frames);
    }
    const reader = new FrameReader();
    expect([...stream].flatMap((character) => reader.read(character))).toEqual(frames);
  });
});
