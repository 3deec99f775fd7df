import type { ReactNode } from "react";

import "./data-table.css";

export type Column = string | { name: string; number?: boolean };
export type Line = { key: string; cells: ReactNode[]; className?: string };

/** A table that scrolls sideways where the window is narrow; `empty` stands in its place where there are no lines. */
export function DataTable({ label, columns, lines, empty }: { label: string; columns: readonly Column[]; lines: readonly Line[]; empty?: ReactNode }) {
  if (lines.length === 0 && empty !== undefined) return <p className="empty">{empty}</p>;
  const told = columns.map((column) => (typeof column === "string" ? { name: column, number: false } : { number: false, ...column }));
  return (
    <div className="wide" role="region" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {told.map((column) => (
              <th key={column.name} scope="col" className={column.number ? "number" : undefined}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {lines.map((line) => (
            <tr key={line.key} className={line.className}>
              {line.cells.map((cell, place) => (
                <td key={told[place]!.name} className={told[place]!.number ? "number" : undefined}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
