import { describe, expect, it } from 'vitest'
import { weakness } from '../src/call/quality'
import type { Verdict, Verdicts } from '../src/net/events'

const good: Verdict = { quality: 'good', cause: null }
const is = (quality: Verdict['quality'], cause: Verdict['cause']): Verdict => ({ quality, cause })

describe('what a tile says of a connection', () => {
  it.each<[Verdicts | undefined, string | null, string | null]>([
    [undefined, 'Bob', null],
    [{}, 'Bob', null],
    [{ up: good, down: good }, 'Bob', null],
    [{ up: is('fair', 'delay'), down: good }, 'Bob', "fair fair connection: Bob's network is slow"],
    [{ up: is('poor', 'loss'), down: good }, 'Bob', "poor weak connection: Bob's upload loses packets"],
    [{ up: is('no_data', 'silence'), down: good }, 'Bob', "none no data: Bob's network is silent"],
    [{ up: good, down: is('fair', 'layer') }, 'Bob', "fair fair connection: Bob's download is thin"],
    [{ down: is('poor', 'loss') }, 'Bob', "poor weak connection: Bob's download loses packets"],
    [{ up: null, down: is('poor', 'loss') }, null, 'poor weak connection: Your download loses packets'],
    // The worse side; of two that are as bad the one that others see.
    [{ up: is('fair', 'loss'), down: is('poor', 'delay') }, null, 'poor weak connection: Your network is slow'],
    [{ up: is('poor', 'loss'), down: is('poor', 'delay') }, null, 'poor weak connection: Your upload loses packets'],
    [{ up: is('poor', 'noise' as 'loss') }, 'Bob', "poor weak connection: Bob's connection is weak"],
    [{ up: is('superb' as 'good', null) }, 'Bob', null],
  ])('%j of %s', (verdicts, name, says) => {
    const weak = weakness(verdicts, name)
    expect(weak && `${weak.quality} ${weak.short}: ${weak.full}`).toBe(says)
  })
})
