import type { Schemas } from "../api/client";
import { count, visible } from "../format";
import { DataTable } from "./data-table";

/** Models with their engines and how these are; addresses are read-only. */
export function Engines({ models }: { models: readonly Schemas["ModelStatus"][] }) {
  const lines = models.flatMap((model) =>
    (model.engines ?? []).map((engine, number) => ({
      key: `${model.name} ${number}`,
      cells: [
        visible(model.name),
        <code key="address">{visible(engine.address)}</code>,
        `${model.driver}${model.keyed ? ", with a key" : ""}`,
        <span key="tokens" title={model.reason == null ? undefined : visible(model.reason)}>{model.tokens}</span>,
        engine.ready ? (
          <span key="state" className={engine.warning == null ? "good" : "warm"}>{engine.warning == null ? "well" : visible(engine.warning)}</span>
        ) : (
          <span key="state" className="bad">{visible(engine.error ?? "not ready")}</span>
        ),
        count(engine.in_flight ?? 0),
        count(engine.waiting ?? 0),
      ],
    })),
  );
  return (
    <DataTable
      label="Engines"
      columns={["Model", "Engine", "Driver", "Ids from", "State", { name: "In flight", number: true }, { name: "Waiting", number: true }]}
      lines={lines}
      empty={
        <>
          This server has no models: it is the control API alone. <code>agentworld serve --upstream URL --model NAME</code> puts a gateway before an engine.
        </>
      }
    />
  );
}
