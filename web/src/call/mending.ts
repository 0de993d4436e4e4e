import { whyGone } from '../net/api'
import { Refused, unreachable, type Problem } from '../net/problem'
import { restart, type Transport } from '../net/transport'
import { backoffMs } from './backoff'
import { fateOf } from './fate'
import type { Link } from './link.svelte'
import { Pulse } from './pulse'
import { StatsReader } from './stats'

/** One connection of a stay, and how it is made anew. */
export interface Lane {
  transport(): Transport | null
  /** Makes it anew under the same identity and puts it in the old one's place when it is up. */
  renew(): Promise<void>
}

/** What mending needs to know of the stay. */
export interface Stayed {
  link: Link
  token: string
  session(): string | null
  /** The server says that the stay has ended, and not by accident. */
  over(problem: Problem): void
}

const LOOK_EVERY_MS = 500
/** How long a restart may take to show an effect. */
const RESTART_MS = 3_000

interface Watched {
  lane: Lane
  /** Of the connection that is watched now. */
  reader: StatsReader
  pulse: Pulse
  attempt: number
  dueMs: number
  busy: boolean
  /** A restart was taken, and has not helped so far. */
  restarted: boolean
  /** It was made anew in this outage: what the server replaced may have been our own. */
  renewed: boolean
}

/**
 * Keeps the connections of a stay alive. One that carries nothing any more gets an ICE restart; where that is refused or
 * does not help it is made anew, with growing pauses, until the link's own end.
 */
export class Mending {
  readonly #watched = new Map<Lane, Watched>()
  readonly #timer: number
  readonly #now = () => this.#hurry()
  #abort = new AbortController()
  #looking = false
  #ended = false
  /** When a connection was made anew last. */
  renewedMs = -Infinity

  constructor(
    readonly stay: Stayed,
    readonly lanes: readonly Lane[],
  ) {
    this.#timer = window.setInterval(() => void this.look(), LOOK_EVERY_MS)
    addEventListener('online', this.#now)
    networkOf()?.addEventListener('change', this.#now)
    void this.look()
  }

  end(): void {
    this.#ended = true
    this.#abort.abort()
    clearInterval(this.#timer)
    removeEventListener('online', this.#now)
    networkOf()?.removeEventListener('change', this.#now)
  }

  /** Packets came on one of the connections within the last second. */
  get flows(): boolean {
    const nowMs = performance.now()
    return [...this.#watched.values()].some(({ pulse }) => pulse.flows(nowMs))
  }

  /** The server says that something of the stay is gone, before it is noticed here. */
  mendAll(): void {
    for (const watched of this.#watched.values()) if (!watched.busy) void this.#mend(watched, true)
  }

  /** How the connections are now, and what has to be done about it. */
  async look(): Promise<void> {
    if (this.#looking || this.#ended) return
    this.#looking = true
    try {
      await this.#read()
    } finally {
      this.#looking = false
    }
    if (this.#ended) return
    const { link } = this.stay
    const nowMs = performance.now()
    const all = [...this.#watched.values()]
    const states = all.map(({ reader }) => reader.pc.connectionState)
    if (link.joining && !states.every((state) => state === 'connected')) {
      link.opening(states.some((state) => state === 'failed' || state === 'closed'), nowMs)
    } else {
      const lost = all.filter((watched) => isLost(watched, nowMs))
      if (lost.length > 0) link.gone(Math.min(...lost.map(({ pulse }) => pulse.heardMs)), nowMs)
      else link.there(nowMs)
      for (const watched of all) {
        const bad = lost.includes(watched)
        if (!bad && !watched.pulse.suspect(nowMs)) {
          Object.assign(watched, { attempt: 0, restarted: false, renewed: false })
        } else if (!watched.busy && nowMs >= watched.dueMs) void this.#mend(watched, bad)
      }
    }
    if (link.ended) this.end()
  }

  /** Follows the lanes to their present connections and reads what came on each. */
  async #read(): Promise<void> {
    const nowMs = performance.now()
    for (const lane of this.lanes) {
      const pc = lane.transport()?.pc
      const watched = this.#watched.get(lane)
      if (!pc) this.#watched.delete(lane)
      else if (!watched) this.#watched.set(lane, watch(lane, pc, nowMs, () => void this.look()))
      else if (watched.reader.pc !== pc) Object.assign(watched, watch(lane, pc, nowMs, () => void this.look()), { busy: watched.busy, renewed: watched.renewed })
    }
    await Promise.all(
      [...this.#watched.values()].map(async ({ reader, pulse }) => {
        const beat = await reader.beat().catch(() => null)
        if (beat) pulse.note(beat, performance.now())
      }),
    )
  }

  /** One try. `lost`: for certain; else the connection is only restarted, which harms nothing. */
  async #mend(watched: Watched, lost: boolean): Promise<void> {
    watched.busy = true
    const { signal } = this.#abort
    let waitMs = backoffMs(++watched.attempt, Math.random())
    try {
      if (!watched.restarted && (await this.#restarted(watched, signal))) {
        watched.restarted = true
        waitMs = RESTART_MS
      } else if (lost) {
        await this.#notOver()
        watched.renewed = true
        this.renewedMs = performance.now()
        await watched.lane.renew()
        waitMs = 0
      }
    } catch (error) {
      if (error instanceof Refused) waitMs = Math.max(waitMs, this.#refused(error.problem))
      else console.warn('a connection was not mended', error)
    }
    watched.busy = false
    watched.dueMs = signal.aborted ? 0 : performance.now() + waitMs
  }

  async #restarted({ lane, renewed }: Watched, signal: AbortSignal): Promise<boolean> {
    const transport = lane.transport()
    if (!transport) return false
    try {
      await restart(transport, this.stay.token, signal)
      return true
    } catch (error) {
      if (error instanceof Refused) {
        const { problem } = error
        const ours = renewed && problem.code === 'replaced'
        if (problem.status === unreachable.status || (fateOf(problem) === 'over' && !ours)) throw error
      }
      console.warn('ICE was not restarted', error)
      return false
    }
  }

  /** Who was removed, or left by another tab, does not come back by itself. */
  async #notOver(): Promise<void> {
    const session = this.stay.session()
    const problem = session === null ? null : await whyGone(session, this.stay.token)
    if (problem && (problem.status === unreachable.status || fateOf(problem) === 'over')) throw new Refused(problem)
  }

  /** Milliseconds to wait at least. */
  #refused(problem: Problem): number {
    if (fateOf(problem) === 'over' && !this.#ended) this.stay.over(problem)
    return (problem.retryAfterS ?? 0) * 1000
  }

  /** The network changed: what waits is tried at once. */
  #hurry(): void {
    this.#abort.abort()
    this.#abort = new AbortController()
    for (const watched of this.#watched.values()) {
      watched.dueMs = 0
      watched.attempt = 0
    }
    void this.look()
  }
}

function watch(lane: Lane, pc: RTCPeerConnection, nowMs: number, look: () => void): Watched {
  pc.addEventListener('connectionstatechange', look)
  pc.addEventListener('iceconnectionstatechange', look)
  const pulse = new Pulse(nowMs)
  return { lane, reader: new StatsReader(pc), pulse, attempt: 0, dueMs: 0, busy: false, restarted: false, renewed: false }
}

function isLost({ reader: { pc }, pulse }: Watched, nowMs: number): boolean {
  return pc.connectionState !== 'connected' || pc.iceConnectionState === 'disconnected' || pulse.lost(nowMs)
}

/** Only where the browser tells of a change of the kind of network: Chromium on phones. */
function networkOf(): EventTarget | undefined {
  const { connection } = navigator as Navigator & { connection?: EventTarget & { type?: string } }
  return connection?.type === undefined ? undefined : connection
}
