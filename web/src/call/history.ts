/** The last minute of a stay's statistics, and how it is drawn. Pure. */

/** What one second showed. Absent: not known. */
export interface Sample {
  atMs: number
  sentBps: number | null
  /** What the browser believes that its path takes. */
  canSendBps: number | null
  gotBps: number | null
  /** What the server believes that the path to here takes. */
  canGetBps: number | null
  /** Shares, 0–1. */
  lostUp: number | null
  lostDown: number | null
}

export const SPAN_MS = 60_000
/** Samples further apart are not joined: nothing is known of what was between. */
const GAP_MS = 3_000

/** The samples of the last minute. */
export function remember(past: readonly Sample[], sample: Sample): Sample[] {
  return [...past, sample].filter(({ atMs }) => atMs >= sample.atMs - SPAN_MS)
}

/** The top of a scale: 1, 2 or 5 times a power of ten, so that it changes seldom. */
export function ceiling(values: readonly (number | null)[], least: number): number {
  const most = Math.max(least, ...values.map((value) => value ?? 0))
  const ten = 10 ** Math.floor(Math.log10(most))
  return ([1, 2, 5].find((step) => step * ten >= most) ?? 10) * ten
}

export interface Size {
  width: number
  height: number
}

/** A line as an SVG path: the newest sample at the right edge, zero at the lower; gaps where nothing is known. */
export function line(
  samples: readonly Sample[],
  of: (sample: Sample) => number | null,
  top: number,
  { width, height }: Size,
): string {
  const end = samples.at(-1)?.atMs ?? 0
  let before: number | null = null
  let path = ''
  for (const sample of samples) {
    const value = of(sample)
    if (value === null) {
      before = null
      continue
    }
    const x = (width * (1 - (end - sample.atMs) / SPAN_MS)).toFixed(1)
    const y = (height * (1 - Math.min(value, top) / top)).toFixed(1)
    const joined: boolean = before !== null && sample.atMs - before <= GAP_MS
    // One that stands alone is a dot: a line of no length with round ends.
    path += joined ? `L${x} ${y}` : `M${x} ${y}h0`
    before = sample.atMs
  }
  return path
}
