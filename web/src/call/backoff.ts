const STEPS_MS = [0, 500, 1_000, 2_000, 4_000]

/** Milliseconds before the `attempt`-th try (from 0): at once, then doubling up to 4 s; ± 20 %, so that a whole room does not come back in step. */
export function backoffMs(attempt: number, random: number): number {
  const base = STEPS_MS[Math.min(attempt, STEPS_MS.length - 1)] ?? 0
  return Math.round(base * (0.8 + 0.4 * random))
}
