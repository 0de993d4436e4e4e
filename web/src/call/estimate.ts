const EVERY_MS = 5_000
/** An older one is not known any more: two answers failed. */
const HOLDS_MS = 12_000

/** What the server believes that the path to here takes: asked for only while somebody looks. */
export class Estimate {
  #known: { bps: number; atMs: number } | null = null

  constructor(readonly ask: () => Promise<number | null>) {}

  /** Begins to ask. Returns what ends it. */
  watch(): () => void {
    let ended = false
    const look = async () => {
      const bps = await this.ask().catch(() => null)
      if (!ended && bps !== null) this.#known = { bps, atMs: performance.now() }
    }
    void look()
    const timer = setInterval(() => void look(), EVERY_MS)
    return () => {
      ended = true
      clearInterval(timer)
    }
  }

  at(nowMs: number): number | null {
    return this.#known && nowMs - this.#known.atMs <= HOLDS_MS ? this.#known.bps : null
  }
}
