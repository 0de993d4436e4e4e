import type { Verdicts } from '../net/events'
import { words } from '../words'

/** How a connection is, by one rule for the whole product. */
export type Quality = 'good' | 'fair' | 'poor' | 'none'

/** Never by colour alone. */
export const SHAPE = { none: '◌', good: '●', fair: '▲', poor: '■' } as const

/** What a window of 5 s showed. Absent: not measured. */
export interface Measured {
  /** Lost after repair, 0–1. */
  loss: number | null
  rttMs: number | null
  /** Longest freeze, ms. */
  freezeMs: number
  /** Share of concealed audio samples, 0–1. */
  concealed: number
  /** Since the last packet or report, ms. */
  silentMs: number
}

/** Silence from which on nothing can be said. */
const NO_DATA_MS = 15_000

export function rate(measured: Measured): Quality {
  const { loss, rttMs, freezeMs, concealed, silentMs } = measured
  if (silentMs >= NO_DATA_MS || (loss === null && rttMs === null)) return 'none'
  if ((loss ?? 0) > 0.05 || (rttMs ?? 0) > 400 || freezeMs >= 1000 || concealed > 0.05) return 'poor'
  if ((loss ?? 0) > 0.02 || (rttMs ?? 0) > 200) return 'fair'
  return 'good'
}

const ORDER: readonly Quality[] = ['good', 'fair', 'poor']
const WORSE_AFTER_MS = 3_000
const BETTER_AFTER_MS = 10_000

/** A quality that changes only when its cause lasts: worse after 3 s, better after 10 s. */
export class Steady {
  #shown: Quality = 'none'
  #other: { quality: Quality; sinceMs: number } | null = null

  /** Takes a new rating and gives what to show. */
  next(quality: Quality, nowMs: number): Quality {
    if (quality === this.#shown) this.#other = null
    else if (this.#shown === 'none' || quality === 'none') {
      this.#shown = quality
      this.#other = null
    } else {
      if (this.#other?.quality !== quality) this.#other = { quality, sinceMs: nowMs }
      const worse = ORDER.indexOf(quality) > ORDER.indexOf(this.#shown)
      if (nowMs - this.#other.sinceMs >= (worse ? WORSE_AFTER_MS : BETTER_AFTER_MS)) {
        this.#shown = quality
        this.#other = null
      }
    }
    return this.#shown
  }
}

/** What a tile says of a connection that is not good. */
export interface Weakness {
  quality: Exclude<Quality, 'good'>
  /** Where there is little room, and for screen readers: "weak connection". */
  short: string
  /** Whose side it is: "Ann's upload loses packets". */
  full: string
}

const WORST: readonly (string | undefined)[] = ['good', 'fair', 'poor', 'no_data']
const SAID = {
  fair: { quality: 'fair', short: words.tile.fair },
  poor: { quality: 'poor', short: words.tile.weak },
  no_data: { quality: 'none', short: words.tile.noData },
} as const

/** The worse of both directions; what is sent counts first, for others see and hear it. `name`: none for oneself. */
export function weakness(verdicts: Verdicts | undefined, name: string | null): Weakness | null {
  const { up, down } = verdicts ?? {}
  const isDown = WORST.indexOf(down?.quality) > WORST.indexOf(up?.quality)
  const { quality, cause } = (isDown ? down : up) ?? {}
  // A newer server may have more words.
  if (!quality || quality === 'good' || !(quality in SAID)) return null
  const { network } = words
  const whose = name === null ? network.yours : network.theirs(name)
  const said: Partial<Record<string, (whose: string) => string>> = isDown ? network.download : network.upload
  return { ...SAID[quality], full: (said[cause ?? ''] ?? network.weak)(whose) }
}
