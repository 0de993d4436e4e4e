const ON_AFTER_MS = 300
const OFF_AFTER_MS = 1000

/** Turns "speaks now" into a calm ring: on after 300 ms of speech, off after 1 s without. One for each call. */
export class Ring {
  readonly #since = new Map<string, { speaks: boolean; atMs: number }>()
  #lit = new Set<string>()

  /** Who speaks from `nowMs` on. */
  heard(speakers: readonly string[], nowMs: number): void {
    const now = new Set(speakers)
    for (const identity of new Set([...this.#since.keys(), ...now])) {
      const speaks = now.has(identity)
      if (this.#since.get(identity)?.speaks !== speaks) this.#since.set(identity, { speaks, atMs: nowMs })
    }
  }

  /** Whose ring is lit at `nowMs`, and when that may change next, if it may. */
  at(nowMs: number): { lit: ReadonlySet<string>; nextMs: number | null } {
    let nextMs: number | null = null
    const lit = new Set(this.#lit)
    for (const [identity, { speaks, atMs }] of this.#since) {
      if (speaks !== lit.has(identity)) {
        const dueMs = atMs + (speaks ? ON_AFTER_MS : OFF_AFTER_MS)
        if (nowMs < dueMs) nextMs = Math.min(nextMs ?? dueMs, dueMs)
        else if (speaks) lit.add(identity)
        else lit.delete(identity)
      }
      if (!speaks && !lit.has(identity)) this.#since.delete(identity)
    }
    this.#lit = lit
    return { lit, nextMs }
  }
}
