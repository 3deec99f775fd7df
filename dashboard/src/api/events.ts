/** Frames of server-sent events out of text that comes in any pieces. */

export type Frame = { id: string | null; kind: string; data: string };

/** Feed it text; it gives the frames that are whole by then. Comments and blank frames are passed over. */
export class FrameReader {
  private rest = "";
  private id: string | null = null;
  private kind = "message";
  private data: string[] = [];

  read(text: string): Frame[] {
    const found: Frame[] = [];
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.data.length > 0) found.push({ id: this.id, kind: this.kind, data: this.data.join("\n") });
        this.id = null;
        this.kind = "message";
        this.data = [];
        continue;
      }
      if (line.startsWith(":")) continue;
      const at = line.indexOf(":");
      const field = at < 0 ? line : line.slice(0, at);
      const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
      if (field === "id") this.id = value;
      else if (field === "event") this.kind = value;
      else if (field === "data") this.data.push(value);
    }
    return found;
  }
}
