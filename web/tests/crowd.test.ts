import { describe, expect, it } from 'vitest'
import { Promoter } from '../src/call/promote'
import { changed } from '../src/call/wishes'

const places = ['a', 'b', 'c', 'd', 'e']

describe('a speaker of another page', () => {
  it('takes the place of the longest silent after 1.5 s of speech, and nobody else moves', () => {
    const promoter = new Promoter()
    promoter.heard(['a'], 0)
    promoter.heard(['b'], 1000)
    promoter.heard(['e'], 2000)
    expect(promoter.next(places, 3, 2000)).toEqual({ places: null, nextMs: 3500 })
    // c has never spoken.
    expect(promoter.next(places, 3, 3500).places).toEqual(['a', 'b', 'e', 'd', 'c'])
  })
  it('goes to who was silent longest when all have spoken', () => {
    const promoter = new Promoter()
    for (const [n, speaker] of ['c', 'a', 'b', 'd'].entries()) promoter.heard([speaker], n * 1000)
    expect(promoter.next(places, 3, 5000).places).toEqual(['a', 'b', 'd', 'c', 'e'])
  })
  it('happens at most once in 3 s', () => {
    const promoter = new Promoter()
    promoter.heard(['d', 'e'], 0)
    const { places: first, nextMs } = promoter.next(places, 3, 1500)
    expect(first).toEqual(['a', 'b', 'd', 'c', 'e'])
    expect(nextMs).toBe(4500)
    expect(promoter.next(first ?? [], 3, 4499)).toEqual({ places: null, nextMs: 4500 })
    expect(promoter.next(first ?? [], 3, 4500).places).toEqual(['a', 'e', 'd', 'c', 'b'])
  })
  it('waits for speech that lasts', () => {
    const promoter = new Promoter()
    promoter.heard(['e'], 0)
    promoter.heard([], 1400)
    expect(promoter.next(places, 3, 1500)).toEqual({ places: null, nextMs: null })
  })
  it('moves nobody in a room that fits, and nobody who speaks', () => {
    const promoter = new Promoter()
    promoter.heard(['a', 'b', 'e'], 0)
    expect(promoter.next(places, 0, 9000)).toEqual({ places: null, nextMs: null })
    expect(promoter.next(places, 5, 9000)).toEqual({ places: null, nextMs: null })
    expect(promoter.next(places, 2, 9000)).toEqual({ places: null, nextMs: null })
  })
})

describe('wishes', () => {
  const shown = { track: 'TR_1', paused: false, width_px: 640, height_px: 360, priority: 0 }
  const told = new Map([[shown.track, shown]])
  it('tells what is new, and what changed', () => {
    expect(changed([shown], new Map())).toEqual([shown])
    expect(changed([shown], told)).toEqual([])
    expect(changed([{ ...shown, width_px: 320 }], told)).toHaveLength(1)
    expect(changed([{ ...shown, priority: 2 }], told)).toHaveLength(1)
    expect(changed([{ track: 'TR_1', paused: true }], told)).toEqual([{ track: 'TR_1', paused: true }])
  })
  it('does not mind the size of what is paused', () => {
    const paused = new Map([['TR_1', { ...shown, paused: true }]])
    expect(changed([{ track: 'TR_1', paused: true }], paused)).toEqual([])
    expect(changed([shown], paused)).toEqual([shown])
  })
})
