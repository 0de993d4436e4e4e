import type { LayerWanted } from '../net/events'

const CAMERA_BPS_MAX = 1_200_000
const HALF_BPS_MAX = 500_000
const QUARTER_BPS_MAX = 150_000

/**
 * What a camera is encoded as, lowest first: three layers, two where they would be too small to be told apart, one of
 * what is small already. `side`: the shorter side of its picture in pixels; unknown while it is off.
 */
export function encodingsFor(side: number | undefined): RTCRtpEncodingParameters[] {
  if (side !== undefined && side <= 180) return [{ maxBitrate: QUARTER_BPS_MAX }]
  if (side !== undefined && side <= 360) {
    return [
      { rid: 'q', scaleResolutionDownBy: 2, maxBitrate: QUARTER_BPS_MAX },
      { rid: 'f', scaleResolutionDownBy: 1, maxBitrate: HALF_BPS_MAX },
    ]
  }
  return [
    { rid: 'q', scaleResolutionDownBy: 4, maxBitrate: QUARTER_BPS_MAX },
    { rid: 'h', scaleResolutionDownBy: 2, maxBitrate: HALF_BPS_MAX },
    { rid: 'f', scaleResolutionDownBy: 1, maxBitrate: CAMERA_BPS_MAX },
  ]
}

/** The shorter side of a camera's picture, so far as it is known. */
export function sideOf(track: MediaStreamTrack | null): number | undefined {
  const { width, height } = track?.getSettings() ?? {}
  return width && height ? Math.min(width, height) : undefined
}

/**
 * A server without simulcast takes the first encoding alone (JSEP, RFC 9429 §5.11), which is the lowest: that one becomes
 * the whole picture. Gives what is to be set, or nothing where the layers stand.
 */
export function wholeIfAlone(
  parameters: RTCRtpSendParameters,
  offered: readonly RTCRtpEncodingParameters[],
): RTCRtpSendParameters | null {
  const [only, ...more] = parameters.encodings
  const best = offered.at(-1)
  if (!only || !best || more.length > 0 || offered.length < 2) return null
  only.scaleResolutionDownBy = 1
  if (best.maxBitrate !== undefined) only.maxBitrate = best.maxBitrate
  return parameters
}

/** Sets `active` as wanted; an encoding of which nothing is said is wanted. Whether anything changed. */
export function activate(encodings: RTCRtpEncodingParameters[], wanted: readonly LayerWanted[]): boolean {
  let changed = false
  for (const encoding of encodings) {
    // Without a name it is all of the track.
    const told = wanted.find(({ rid }) => rid === null || rid === encoding.rid)
    const active = told?.wanted ?? true
    changed ||= active !== (encoding.active ?? true)
    encoding.active = active
  }
  return changed
}

/** Keeps one sender's encodings as the server wants them: one change at a time, the newest wish only. */
class LayerSwitch {
  #wanted: readonly LayerWanted[] = []
  #due = false
  #busy = false

  constructor(readonly sender: RTCRtpSender) {}

  want(wanted: readonly LayerWanted[]): void {
    this.#wanted = wanted
    this.#due = true
    if (!this.#busy) void this.#work()
  }

  async #work(): Promise<void> {
    this.#busy = true
    while (this.#due) {
      this.#due = false
      try {
        const parameters = this.sender.getParameters()
        if (activate(parameters.encodings, this.#wanted)) await this.sender.setParameters(parameters)
      } catch (error) {
        // The connection has gone meanwhile, or the browser cannot: more is sent than need be, which harms nobody.
        console.warn('layers were not switched', error)
      }
    }
    this.#busy = false
  }
}

/** For so long after a snapshot the server may still be telling what it does not want. */
const TOLD_WITHIN_MS = 250

/** What the server wants of our own pictures, told by the event stream. */
export class OwnLayers {
  /** Track → its sender's. */
  readonly #switches = new Map<string, LayerSwitch>()
  /** Of tracks that nothing was said of since the snapshot. */
  #silent = new Set<string>()
  #timer: ReturnType<typeof setTimeout> | undefined

  /** `sender`: what sends the track now; nothing where nothing does. */
  hear(track: string, sender: RTCRtpSender | null, wanted: readonly LayerWanted[]): void {
    if (!sender) return
    const known = this.#switches.get(track) ?? new LayerSwitch(sender)
    // News of a track whose connection was made anew: another track goes there now.
    if (known.sender !== sender) return
    this.#switches.set(track, known)
    this.#silent.delete(track)
    known.want(wanted)
  }

  /** A stream that begins with a snapshot says what is not wanted, and nothing of a track that is wanted as a whole. */
  anew(): void {
    this.#silent = new Set(this.#switches.keys())
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      for (const track of this.#silent) this.#switches.get(track)?.want([])
    }, TOLD_WITHIN_MS)
  }

  /** A track is no longer. */
  gone(track: string): void {
    this.#switches.delete(track)
    this.#silent.delete(track)
  }

  end(): void {
    clearTimeout(this.#timer)
  }
}
