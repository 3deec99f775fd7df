import { useState, type PointerEvent } from "react";

import { nearest, place, scaleOf, thinned, type Series } from "../chart";
import { decimal, visible } from "../format";
import "./chart.css";

const WIDTH = 560;
const HEIGHT = 200;
const LEFT = 52;
const BOTTOM = 24;
const MOST = 400;

type ChartProps = { title: string; series: readonly Series[]; x: string; xText?: (value: number) => string; yText?: (value: number) => string; zero?: boolean };

/** Curves over one axis. The numbers are in a table behind it, for who does not see it. */
export function Chart({ title, series, x, xText = decimal, yText = decimal, zero = true }: ChartProps) {
  const [at, setAt] = useState<number | null>(null);
  const drawn = series.map((each) => ({ ...each, points: thinned(each.points, MOST) })).filter((each) => each.points.length > 0);
  if (drawn.length === 0) return null;
  const all = drawn.flatMap((each) => each.points);
  const across = { ...scaleOf(all.map((each) => each.x)), low: Math.min(...all.map((each) => each.x)), high: Math.max(...all.map((each) => each.x)) };
  // A single one stands in the middle.
  const single = across.low === across.high;
  if (single) [across.low, across.high] = [across.low - 1, across.high + 1];
  const up = scaleOf([...all.map((each) => each.y), ...(zero ? [0] : [])]);
  const left = (value: number) => LEFT + place(value, across) * (WIDTH - LEFT - 8);
  const top = (value: number) => HEIGHT - BOTTOM - place(value, up) * (HEIGHT - BOTTOM - 8);
  const move = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const share = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - 8);
    setAt(nearest(all, across.low + share * (across.high - across.low))?.x ?? null);
  };
  return (
    <figure className="chart">
      <figcaption>
        <strong>{visible(title)}</strong>
        {drawn.length > 1 && drawn.map((each, number) => <span key={each.name} className={`of c${number % 6}`}>{visible(each.name)}</span>)}
        <span className="quiet at">{at !== null && `${x} ${xText(at)}: ${drawn.map((each) => `${drawn.length > 1 ? `${visible(each.name)} ` : ""}${told(each.points, at, yText)}`).join(", ")}`}</span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} aria-hidden="true" onPointerMove={move} onPointerLeave={() => setAt(null)}>
        {up.marks.map((mark) => (
          <g key={mark}>
            <line className="grid" x1={LEFT} x2={WIDTH - 8} y1={top(mark)} y2={top(mark)} />
            <text x={LEFT - 6} y={top(mark) + 4} textAnchor="end">{yText(mark)}</text>
          </g>
        ))}
        {single ? (
          <text x={left(across.low + 1)} y={HEIGHT - 6} textAnchor="middle">{xText(across.low + 1)}</text>
        ) : (
          <>
            <text x={LEFT} y={HEIGHT - 6}>{xText(across.low)}</text>
            <text x={WIDTH - 8} y={HEIGHT - 6} textAnchor="end">{xText(across.high)}</text>
          </>
        )}
        {at !== null && <line className="here" x1={left(at)} x2={left(at)} y1={8} y2={HEIGHT - BOTTOM} />}
        {drawn.map((each, number) => (
          <g key={each.name} className={`c${number % 6}`}>
            <polyline points={each.points.map((point) => `${left(point.x)},${top(point.y)}`).join(" ")} />
            {each.points.length <= 60 && each.points.map((point) => <circle key={point.x} cx={left(point.x)} cy={top(point.y)} r={2.5} />)}
          </g>
        ))}
      </svg>
      <details>
        <summary>Numbers</summary>
        <div className="numbers" role="region" tabIndex={0} aria-label={`Numbers of ${visible(title)}`}>
          <table>
            <thead>
              <tr><th scope="col">{x}</th>{drawn.map((each) => <th key={each.name} scope="col">{visible(each.name)}</th>)}</tr>
            </thead>
            <tbody>
              {[...new Set(all.map((each) => each.x))].sort((a, b) => a - b).slice(-200).map((value) => (
                <tr key={value}><td>{xText(value)}</td>{drawn.map((each) => <td key={each.name} className="number">{told(each.points, value, yText)}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

function told(points: Series["points"], x: number, text: (value: number) => string): string {
  const found = points.find((point) => point.x === x);
  return found === undefined ? "-" : text(found.y);
}

export type Bar = { name: string; count: number };

/** How many have which value: bars with their numbers. */
export function Bars({ title, bars, says }: { title: string; bars: readonly Bar[]; says?: string }) {
  const most = Math.max(1, ...bars.map((bar) => bar.count));
  return (
    <figure className="chart counts">
      <figcaption><strong>{visible(title)}</strong>{says !== undefined && <span className="quiet">{says}</span>}</figcaption>
      {bars.length === 0 && <p className="quiet">Nothing to count yet.</p>}
      <ul>
        {bars.map((bar) => (
          <li key={bar.name}>
            <span>{visible(bar.name)}</span>
            <meter min={0} max={most} value={bar.count} aria-label={visible(bar.name)} />
            <span className="number">{bar.count.toLocaleString()}</span>
          </li>
        ))}
      </ul>
    </figure>
  );
}
