/** Counters of one connection that only grow. */
export interface Beat {
  /** What came on it besides checks: packets, or their bytes. */
  packets: number
  /** ICE checks that the server answered. */
  checks: number
}

/** Packets within this count as flowing: the browser's own state lags when a network goes. */
const FLOWS_MS = 1_000
/** Silence after packets from which on the path is tried anew, quietly. */
const SUSPECT_MS = 1_500
/** Silence from which on the path counts as lost. */
const LOST_MS = 2_000

/** Whether a connection still carries anything: told by what came, not by what the browser thinks of it. */
export class Pulse {
  #last: Beat | null = null
  #packetMs = -Infinity
  #heardMs: number
  /** Packets came one after another, so that their absence means something. */
  #steady = false

  constructor(nowMs: number) {
    this.#heardMs = nowMs
  }

  /** When anything came last. */
  get heardMs(): number {
    return this.#heardMs
  }

  note(beat: Beat, nowMs: number): void {
    const packets = this.#last !== null && beat.packets > this.#last.packets
    const checks = this.#last !== null && beat.checks > this.#last.checks
    if (packets) this.#steady = nowMs - this.#packetMs <= SUSPECT_MS
    // The path is open and nobody sends: from now on silence says nothing.
    else if (checks && nowMs - this.#packetMs >= SUSPECT_MS) this.#steady = false
    if (packets) this.#packetMs = nowMs
    if (packets || checks || this.#last === null) this.#heardMs = nowMs
    this.#last = { ...beat }
  }

  flows(nowMs: number): boolean {
    // The counters are read twice a second.
    return nowMs - this.#packetMs <= FLOWS_MS + 500
  }

  suspect(nowMs: number): boolean {
    return this.#steady && nowMs - this.#heardMs >= SUSPECT_MS
  }

  lost(nowMs: number): boolean {
    return this.#steady && nowMs - this.#heardMs >= LOST_MS
  }
}
