import { words, type Said } from '../words'

/** What a notice may be about; the first that holds is shown, and only that one. */
export interface Causes {
  failedS: number | null
  never: boolean
  heldBack: boolean
  mutedBy: string | null
  moving: boolean
  device: Said | null
  /** Why the screen was not shared. */
  share: Said | null
  controlLost: boolean
  uploadWeak: boolean
  downloadWeak: boolean
  spokeMuted: boolean
  silent: string | null
  undecodable: string | null
  /** People whose sound finds no place on this page. */
  unheard: number
  /** People whose tile is here and whose picture finds no place. */
  unshown: number
}

export interface Notice extends Said {
  /** Of those that a person must hear of at once. */
  urgent: boolean
}

/** One notice at a time, worst first. */
export function pickNotice(c: Causes): Notice | null {
  const say = (text: string, actions: Said['actions'] = [], urgent = false): Notice => ({ text, actions, urgent })
  const w = words.call
  if (c.failedS !== null) return say(w.reconnectFailed(c.failedS), ['tryAgain', 'leave'], true)
  if (c.never) return say(w.joinTimeout, ['tryAgain', 'leave'], true)
  if (c.heldBack) return say(w.heldBack, ['turnOnSound'])
  if (c.mutedBy) return say(c.mutedBy)
  if (c.moving) return say(words.byOthers.moving)
  if (c.device) return { ...c.device, urgent: true }
  if (c.share) return { ...c.share, urgent: true }
  if (c.controlLost) return say(w.controlLost)
  if (c.uploadWeak) return say(w.uploadWeak, ['stopVideo'])
  if (c.downloadWeak) return say(w.downloadWeak)
  if (c.spokeMuted) return say(w.muted)
  if (c.silent) return say(words.devices.silent(c.silent))
  if (c.undecodable) return say(w.codecUnsupported(c.undecodable))
  if (c.unheard > 0) return say(w.unheard(c.unheard))
  if (c.unshown > 0) return say(w.moreThanFit(c.unshown))
  return null
}

/** Gathers who came and went, and says it every 5 s; says nothing in a room of more than 20. */
export class Comings {
  #came = new Set<string>()
  #went = new Set<string>()
  #timer = 0

  constructor(readonly say: (text: string) => void) {}

  /** `names` of those who came and went since the last call, and how many are in now. */
  note(came: readonly string[], went: readonly string[], people: number): void {
    if (people > 20) return
    for (const name of came) this.#went.delete(name) || this.#came.add(name)
    for (const name of went) this.#came.delete(name) || this.#went.add(name)
    if (!this.#timer && this.#came.size + this.#went.size > 0) {
      this.#timer = window.setTimeout(() => this.#flush(), 5000)
    }
  }

  end(): void {
    clearTimeout(this.#timer)
  }

  #flush(): void {
    const parts = [
      this.#came.size > 0 ? words.call.joined([...this.#came].join(', ')) : '',
      this.#went.size > 0 ? words.call.goneNames([...this.#went].join(', ')) : '',
    ].filter(Boolean)
    this.#came.clear()
    this.#went.clear()
    this.#timer = 0
    if (parts.length > 0) this.say(parts.join(' '))
  }
}
