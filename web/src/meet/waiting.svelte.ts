import { retryInS, triesAgain, type Problem } from '../net/problem'

/** Counts down to the next try where the server is full, and tries. */
export class Waiting {
  /** To the next try; 0 while none is due. */
  seconds = $state(0)
  #attempt = 0
  #timer = 0
  readonly #again: () => void

  constructor(again: () => void) {
    this.#again = again
  }

  /** A try was refused: starts the count if this refusal is worth waiting for. */
  after(problem: Problem): void {
    this.stop()
    if (!triesAgain(problem)) return
    this.seconds = retryInS(this.#attempt++, problem.retryAfterS, Math.random())
    this.#timer = window.setInterval(() => {
      this.seconds--
      if (this.seconds > 0) return
      this.stop()
      this.#again()
    }, 1000)
  }

  stop(): void {
    clearInterval(this.#timer)
    this.seconds = 0
  }

  reset(): void {
    this.stop()
    this.#attempt = 0
  }
}
