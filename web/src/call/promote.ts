const AFTER_MS = 1_500
const EVERY_MS = 3_000

/**
 * Who comes to the first page of a room that does not fit on one: a speaker of another page, after 1.5 s of speech, at
 * most every 3 s, takes the place of whoever was silent longest there.
 */
export class Promoter {
  /** Speaks now → since when. */
  readonly #since = new Map<string, number>()
  /** Spoke last at. */
  readonly #spoke = new Map<string, number>()
  #lastMs = -Infinity

  /** Who speaks from `nowMs` on. */
  heard(speakers: readonly string[], nowMs: number): void {
    for (const identity of [...this.#since.keys()]) {
      if (speakers.includes(identity)) continue
      this.#since.delete(identity)
      this.#spoke.set(identity, nowMs)
    }
    for (const identity of speakers) if (!this.#since.has(identity)) this.#since.set(identity, nowMs)
  }

  /**
   * `places` after a promotion that is due, or nothing; and when one may be due next. `first`: places of page 1.
   */
  next(places: readonly string[], first: number, nowMs: number): { places: string[] | null; nextMs: number | null } {
    if (first <= 0 || places.length <= first) return { places: null, nextMs: null }
    const waiting = [...this.#since]
      .map(([identity, sinceMs]) => ({ at: places.indexOf(identity), dueMs: Math.max(sinceMs + AFTER_MS, this.#lastMs + EVERY_MS) }))
      .filter(({ at }) => at >= first)
      .sort((a, b) => a.dueMs - b.dueMs)
    const [one] = waiting
    if (!one) return { places: null, nextMs: null }
    if (one.dueMs > nowMs) return { places: null, nextMs: one.dueMs }
    const seat = this.#silentLongest(places.slice(0, first))
    // Everybody on page 1 speaks: nobody has to go.
    if (seat === null) return { places: null, nextMs: null }
    this.#lastMs = nowMs
    const next = [...places]
    const [speaker, silent] = [places[one.at], places[seat]]
    if (speaker === undefined || silent === undefined) return { places: null, nextMs: null }
    next[seat] = speaker
    next[one.at] = silent
    return { places: next, nextMs: nowMs + EVERY_MS }
  }

  /** Of equals the last: who sits first has been looked at longest. */
  #silentLongest(seats: readonly string[]): number | null {
    let best: number | null = null
    let least = Infinity
    seats.forEach((identity, seat) => {
      if (this.#since.has(identity)) return
      const spokeMs = this.#spoke.get(identity) ?? -Infinity
      if (best === null || spokeMs <= least) {
        best = seat
        least = spokeMs
      }
    })
    return best
  }
}
