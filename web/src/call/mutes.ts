import { patchMuted } from '../net/api'
import type { Source } from '../net/events'

/** The sources that have a switch on this page. */
export type Switches = Record<'microphone' | 'camera', boolean>

/** What the server was told of our own mutes, and the telling of the rest. */
export class Mutes {
  /** Own track → muted, as far as the server was told. A new track counts there as unmuted. */
  readonly #told = new Map<string, boolean>()
  #telling: Promise<void> = Promise.resolve()

  /** The server itself changed it. */
  changed(track: string, muted: boolean): void {
    this.#told.set(track, muted)
  }

  /** Tells the server of own tracks whose switch stands otherwise than it knows. */
  tell(session: string | null, tracks: ReadonlyMap<Source, string>, on: Switches, token: string): void {
    const news: Record<string, boolean> = {}
    for (const source of ['microphone', 'camera'] as const) {
      const id = tracks.get(source)
      if (id === undefined || (this.#told.get(id) ?? false) === !on[source]) continue
      this.#told.set(id, !on[source])
      news[id] = !on[source]
    }
    if (session === null || Object.keys(news).length === 0) return
    // One after another: a quick double press must not arrive in the wrong order.
    this.#telling = this.#telling
      .then(() => patchMuted(session, news, token))
      .catch((error: unknown) => {
        for (const id of Object.keys(news)) this.#told.delete(id)
        console.warn('mute was not told to the server', error)
      })
  }
}
