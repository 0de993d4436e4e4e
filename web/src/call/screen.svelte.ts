import { Refused, sayProblem } from '../net/problem'
import { connected, disconnect } from '../net/transport'
import { polite } from '../ui/announce'
import { words, type Said } from '../words'
import { publishScreen, type Publication, type Stay } from './peer'

const UP_MS = 10_000

/** `false` where a browser cannot record the screen: phones. */
export const canShare = (): boolean => typeof navigator.mediaDevices?.getDisplayMedia === 'function'

/** Why a screen was not given (Screen Capture §5.1). Nothing where its person only changed their mind. */
export function sayRefusal(error: unknown): Said | null {
  const { name = '', message = '' } = error instanceof DOMException ? error : {}
  const bySystem = name === 'NotAllowedError' && /system/i.test(message)
  return bySystem || name === 'NotReadableError' || name === 'NotFoundError' ? { text: words.share.system, actions: [] } : null
}

/** Our own screen: a second connection of the same stay, for as long as it is shared. */
export class Screen {
  state = $state<'off' | 'starting' | 'on'>('off')
  track = $state.raw<MediaStreamTrack | null>(null)
  /** Why it was not shared, until the next try. */
  refused = $state.raw<Said | null>(null)
  publication: Publication | null = null
  #sound: MediaStreamTrack | null = null

  constructor(readonly stay: Stay) {}

  async start(): Promise<void> {
    if (this.state !== 'off') return
    this.state = 'starting'
    this.refused = null
    try {
      await this.#choose()
      await this.publish()
      // Stopped from the browser's own bar meanwhile.
      if (!this.track) return
      this.state = 'on'
      polite(words.share.on)
    } catch (error) {
      this.stop()
      this.refused =
        error instanceof Refused
          ? error.problem.status === 403
            ? { text: words.share.hostsOnly, actions: [] }
            : sayProblem(error.problem, this.stay.room)
          : sayRefusal(error)
      if (!(error instanceof Refused || error instanceof DOMException)) console.error(error)
    }
  }

  /** Ends it: by the button, by the browser's own bar, or with the call. */
  stop(): void {
    const was = this.state
    for (const track of [this.track, this.#sound]) track?.stop()
    if (this.publication) disconnect(this.publication.transport, this.stay.token)
    this.track = null
    this.#sound = null
    this.publication = null
    this.state = 'off'
    if (was === 'on') polite(words.share.off)
  }

  /** Publishes the tracks that were given; again in place of a connection that is gone. */
  async publish(): Promise<void> {
    if (!this.track) return
    const old = this.publication
    const next = await publishScreen(this.stay, this.track, this.#sound)
    old?.transport.pc.close()
    // A first one counts from when it is up; the server knows a later one as the old one's successor already.
    if (old) this.publication = next
    try {
      await connected(next.transport.pc, UP_MS)
    } finally {
      if (this.track) this.publication = next
      else disconnect(next.transport, this.stay.token)
    }
  }

  async #choose(): Promise<void> {
    const stream = await navigator.mediaDevices.getDisplayMedia({
      video: { frameRate: { ideal: 15, max: 30 } },
      audio: true,
      selfBrowserSurface: 'exclude',
      surfaceSwitching: 'include',
      systemAudio: 'include',
    } as DisplayMediaStreamOptions)
    const [track] = stream.getVideoTracks()
    if (!track) throw new DOMException('', 'NotFoundError')
    this.#sound = stream.getAudioTracks()[0] ?? null
    track.contentHint = 'detail'
    if (this.#sound) this.#sound.contentHint = 'music'
    track.addEventListener('ended', () => this.track === track && this.stop())
    this.track = track
  }
}
