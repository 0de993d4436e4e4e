// What came of one stream: sequence numbers, so that every hole and every second copy is seen.

/** Payload type, sequence number and the rest of an RTP header; nothing for RTCP (RFC 5761 section 4). */
export function header(bytes) {
  if (bytes.length < 12 || bytes[0] >> 6 !== 2 || (bytes[1] >= 192 && bytes[1] <= 223)) return null
  return { pt: bytes[1] & 0x7f, marker: bytes[1] >> 7 === 1, seq: bytes.readUInt16BE(2), time: bytes.readUInt32BE(4), ssrc: bytes.readUInt32BE(8) }
}

export class Stream {
  packets = 0
  frames = 0
  /** Longest time without a packet, in ms. */
  pause = 0
  #last = 0
  #seen = new Set()
  #highest = null
  #lowest = null

  take(rtp) {
    const now = performance.now()
    if (this.#last) this.pause = Math.max(this.pause, now - this.#last)
    this.#last = now
    this.packets++
    if (rtp.marker) this.frames++
    const step = this.#highest === null ? 0 : ((rtp.seq - this.#highest + 0x18000) & 0xffff) - 0x8000
    const seq = (this.#highest ?? 0x10000 + rtp.seq) + step
    this.#highest = Math.max(this.#highest ?? seq, seq)
    this.#lowest = Math.min(this.#lowest ?? seq, seq)
    this.#seen.add(seq)
  }

  get lost() {
    return this.#highest === null ? 0 : this.#highest - this.#lowest + 1 - this.#seen.size
  }

  get twice() {
    return this.packets - this.#seen.size
  }

  /** What is not right after `seconds` of a stream that was there all the time, as sentences. */
  faults(what, { frames, pause }) {
    const faults = []
    if (this.frames < frames) faults.push(`${what}: ${this.frames} frames, at least ${frames} were to come`)
    if (this.lost) faults.push(`${what}: ${this.lost} of ${this.packets} packets never came`)
    if (this.twice) faults.push(`${what}: ${this.twice} packets came twice`)
    if (this.pause > pause) faults.push(`${what}: nothing came for ${this.pause.toFixed(0)} ms, allowed are ${pause}`)
    return faults
  }
}
