/** `slow`: joining for more than 5 s. `lost`: gone for more than 2 s. `failed`: the page has given up. */
export type LinkState = 'joining' | 'slow' | 'connected' | 'lost' | 'back' | 'failed' | 'never'

const SLOW_AFTER_MS = 5_000
/** The server's own join deadline (interfaces §7). */
const JOIN_MS = 15_000
const LOST_AFTER_MS = 2_000
const GIVE_UP_MS = 60_000
const BACK_SHOWN_MS = 4_000

/** How the connections of a stay are, in the steps that a person is told. Facts and times come from outside. */
export class Link {
  state = $state<LinkState>('joining')
  /** Of `lost`, `back` and `failed`: for how long it was, or is, gone. */
  seconds = $state(0)
  readonly #startMs: number
  #goneMs: number | null = null
  #backMs = 0

  constructor(nowMs: number) {
    this.#startMs = nowMs
  }

  get joining(): boolean {
    return this.state === 'joining' || this.state === 'slow'
  }

  /** It has ended, for good or until its person tries again. */
  get ended(): boolean {
    return this.state === 'failed' || this.state === 'never'
  }

  /** The connections are not up for the first time yet. `broken`: one of them cannot come up. */
  opening(broken: boolean, nowMs: number): void {
    const tookMs = nowMs - this.#startMs
    if (tookMs > JOIN_MS || broken) this.neverOpened()
    else if (tookMs > SLOW_AFTER_MS) this.state = 'slow'
  }

  /** No media path opened in time. */
  neverOpened(): void {
    this.state = 'never'
  }

  /** All of them carry. */
  there(nowMs: number): void {
    if (this.state === 'lost') {
      this.state = 'back'
      this.#backMs = nowMs
      this.seconds = Math.round((nowMs - (this.#goneMs ?? nowMs)) / 1000)
    } else if (this.state !== 'back' || nowMs - this.#backMs > BACK_SHOWN_MS) this.state = 'connected'
    this.#goneMs = null
  }

  /** One of them carries nothing, since `sinceMs`. */
  gone(sinceMs: number, nowMs: number): void {
    this.#goneMs ??= Math.min(sinceMs, nowMs)
    const goneMs = nowMs - this.#goneMs
    if (goneMs < LOST_AFTER_MS) return
    this.seconds = Math.round(goneMs / 1000)
    this.state = goneMs >= GIVE_UP_MS ? 'failed' : 'lost'
  }
}
