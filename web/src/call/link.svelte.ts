/** `slow`: joining for more than 5 s. `lost`: gone for more than 2 s. `failed`: the page has given up. */
export type LinkState = 'joining' | 'slow' | 'connected' | 'lost' | 'back' | 'failed' | 'never'

const SLOW_AFTER_MS = 5_000
/** The server's own join deadline (interfaces §7). */
const JOIN_MS = 15_000
const LOST_AFTER_MS = 2_000
const GIVE_UP_MS = 60_000
const BACK_SHOWN_MS = 4_000

/** How the connections of a stay are, in the steps that a person is told. */
export class Link {
  state = $state<LinkState>('joining')
  /** Of `lost`, `back` and `failed`: for how long it was, or is, gone. */
  seconds = $state(0)
  #pcs: RTCPeerConnection[] = []
  #startMs = performance.now()
  #goneMs: number | null = null
  #backMs = 0
  #timer = 0

  watch(pcs: RTCPeerConnection[]): void {
    this.#pcs = pcs
    for (const pc of pcs) pc.addEventListener('connectionstatechange', () => this.#look())
    this.#timer = window.setInterval(() => this.#look(), 500)
    this.#look()
  }

  /** The server says that no media path opened in time. */
  neverOpened(): void {
    this.state = 'never'
    this.end()
  }

  /** The server says that this stay cannot go on. */
  fail(): void {
    this.#goneMs ??= performance.now()
    this.#giveUp(performance.now())
  }

  end(): void {
    clearInterval(this.#timer)
    this.#pcs = []
  }

  #look(): void {
    if (this.#pcs.length === 0 || this.state === 'failed' || this.state === 'never') return
    const nowMs = performance.now()
    const states = this.#pcs.map((pc) => pc.connectionState)
    if (states.every((state) => state === 'connected')) this.#there(nowMs)
    else if (this.state === 'joining' || this.state === 'slow') this.#notYet(nowMs, states)
    else this.#gone(nowMs, states)
  }

  #there(nowMs: number): void {
    if (this.state === 'lost') {
      this.state = 'back'
      this.#backMs = nowMs
    } else if (this.state !== 'back' || nowMs - this.#backMs > BACK_SHOWN_MS) this.state = 'connected'
    this.#goneMs = null
  }

  #notYet(nowMs: number, states: RTCPeerConnectionState[]): void {
    const tookMs = nowMs - this.#startMs
    if (tookMs > JOIN_MS || states.some((state) => state === 'failed' || state === 'closed')) {
      this.neverOpened()
    } else if (tookMs > SLOW_AFTER_MS) this.state = 'slow'
  }

  #gone(nowMs: number, states: RTCPeerConnectionState[]): void {
    this.#goneMs ??= nowMs
    const goneMs = nowMs - this.#goneMs
    // A connection that failed or was closed by the other side does not come back by itself.
    if (goneMs > GIVE_UP_MS || (goneMs > LOST_AFTER_MS && states.some((s) => s === 'failed' || s === 'closed'))) {
      this.#giveUp(nowMs)
    } else if (goneMs > LOST_AFTER_MS) {
      this.state = 'lost'
      this.seconds = Math.round(goneMs / 1000)
    }
  }

  #giveUp(nowMs: number): void {
    this.seconds = Math.round((nowMs - (this.#goneMs ?? nowMs)) / 1000)
    this.state = 'failed'
    this.end()
  }
}
