import { patchWishes, type Wish } from '../net/api'

const AFTER_MS = 250
/** After a refusal; a track of the list has gone meanwhile, or the network has. */
const AGAIN_MS = 1_000

const TOLD = ['width_px', 'height_px', 'priority'] as const

/** What is to be told of `wanted`, so far as it is not what `told` has. Sizes of what is paused are of no interest. */
export function changed(wanted: readonly Wish[], told: ReadonlyMap<string, Wish>): Wish[] {
  return wanted.filter((wish) => {
    const before = told.get(wish.track)
    if (!before) return true
    if (before.paused !== wish.paused) return true
    return !wish.paused && TOLD.some((field) => before[field] !== wish[field])
  })
}

/** Tells the server what the page shows: gathered over 250 ms, one request at a time, only what changed. */
export class Wishes {
  #wanted: readonly Wish[] = []
  #told = new Map<string, Wish>()
  #timer = 0
  #busy = false
  #ended = false

  constructor(
    readonly session: () => string | null,
    readonly token: string,
    /** What was paused comes again. */
    readonly resumed: () => void,
  ) {}

  /** All tracks that have a section, and what is wanted of each. One that lost its section starts anew with the next. */
  want(wishes: readonly Wish[]): void {
    this.#wanted = wishes
    const present = new Set(wishes.map((wish) => wish.track))
    for (const track of this.#told.keys()) if (!present.has(track)) this.#told.delete(track)
    this.#later(AFTER_MS)
  }

  /** Another connection: its sections have heard nothing yet. */
  forget(): void {
    this.#told.clear()
    this.#later(0)
  }

  end(): void {
    this.#ended = true
    clearTimeout(this.#timer)
  }

  #later(ms: number): void {
    if (this.#ended) return
    clearTimeout(this.#timer)
    this.#timer = window.setTimeout(() => void this.#tell(), ms)
  }

  async #tell(): Promise<void> {
    const session = this.session()
    const news = changed(this.#wanted, this.#told)
    if (news.length === 0 || session === null) return
    if (this.#busy) return this.#later(AFTER_MS)
    this.#busy = true
    try {
      await patchWishes(session, news, this.token)
      if (news.some((wish) => !wish.paused && this.#told.get(wish.track)?.paused)) this.resumed()
      for (const wish of news) this.#told.set(wish.track, wish)
    } catch (error) {
      console.warn('wishes were not told to the server', error)
      this.#later(AGAIN_MS)
    }
    this.#busy = false
  }
}
