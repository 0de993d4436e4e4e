import { describe, expect, it } from 'vitest'
import { columnsFor, corner, grid, neighbour, pinnedGrid, type Rect } from '../src/call/grid'
import { reseat } from '../src/call/places'

// A window of 1440 × 900 leaves 772 between the bars of 48 and 80.
const desktop = { width: 1440, height: 772 }
const phone = { width: 390, height: 716 }

function overlap(a: Rect, b: Rect): boolean {
  const apart = 0.01
  return (
    a.left + a.width > b.left + apart &&
    b.left + b.width > a.left + apart &&
    a.top + a.height > b.top + apart &&
    b.top + b.height > a.top + apart
  )
}

describe('grid', () => {
  it.each([
    [1, 1, 1372],
    [2, 2, 700],
    [4, 2, 679],
    [9, 3, 448],
    [25, 5, 263],
  ])('%i tiles of a desktop stand in %i columns of %i px', (count, columns, width) => {
    expect(columnsFor(count, desktop)).toBe(columns)
    expect(Math.round(grid(count, desktop)[0]?.width ?? 0)).toBe(width)
  })

  it('gives a phone two columns of 183 px from three tiles on, cut to 3:4 at most', () => {
    const [first] = grid(4, phone)
    expect(first?.width).toBe(183)
    expect(first?.height).toBe(244)
    expect(columnsFor(2, phone)).toBe(1)
    expect(columnsFor(3, phone)).toBe(2)
    const six = grid(6, phone)[0]
    expect(six?.width).toBe(183)
    expect(Math.round(six?.height ?? 0)).toBe(233)
  })

  it.each([1, 2, 3, 4, 5, 6, 7, 8, 9])('%i tiles lie on the stage, apart, in every stage', (count) => {
    for (const stage of [desktop, phone, { width: 320, height: 440 }, { width: 1032, height: 772 }, { width: 844, height: 262 }]) {
      for (const rects of [grid(count, stage), pinnedGrid(count, count - 1, stage)]) {
        expect(rects).toHaveLength(count)
        rects.forEach((rect, index) => {
          expect(rect.left).toBeGreaterThanOrEqual(0)
          expect(rect.top).toBeGreaterThanOrEqual(-0.01)
          expect(rect.left + rect.width).toBeLessThanOrEqual(stage.width + 0.01)
          expect(rect.top + rect.height).toBeLessThanOrEqual(stage.height + 0.01)
          rects.slice(index + 1).forEach((other) => expect(overlap(rect, other)).toBe(false))
        })
      }
    }
  })

  it.each([1, 2])('floats one’s own tile in the corner of the last of %i others', (count) => {
    for (const stage of [phone, desktop]) {
      const last = grid(count, stage).at(-1) as Rect
      const rect = corner(stage, last)
      expect(rect.left + rect.width).toBe(last.left + last.width - 8)
      expect(rect.top + rect.height).toBe(last.top + last.height - 8)
      expect(rect.left).toBeGreaterThan(last.left)
    }
  })

  it('has nothing to draw without room or people', () => {
    expect(grid(0, desktop)).toEqual([])
    expect(grid(3, { width: 0, height: 0 })).toEqual([])
  })

  it('walks by arrow keys, and stays at an edge', () => {
    const four = grid(4, desktop)
    expect(neighbour(four, 0, 'ArrowRight')).toBe(1)
    expect(neighbour(four, 0, 'ArrowDown')).toBe(2)
    expect(neighbour(four, 3, 'ArrowUp')).toBe(1)
    expect(neighbour(four, 3, 'ArrowLeft')).toBe(2)
    expect(neighbour(four, 0, 'ArrowLeft')).toBe(0)
  })
})

describe('places', () => {
  it('seats in order of arrival', () => expect(reseat([], ['a', 'b'])).toEqual(['a', 'b']))
  it('gives a leaver’s place to the last, and moves nobody else', () => {
    expect(reseat(['a', 'b', 'c', 'd'], ['a', 'c', 'd'])).toEqual(['a', 'd', 'c'])
  })
  it('lets the last go', () => expect(reseat(['a', 'b', 'c'], ['a', 'b'])).toEqual(['a', 'b']))
  it('fills several gaps', () => {
    expect(reseat(['a', 'b', 'c', 'd', 'e'], ['b', 'd'])).toEqual(['d', 'b'])
    expect(reseat(['a', 'b', 'c'], [])).toEqual([])
  })
  it('seats a newcomer last', () => expect(reseat(['a', 'b', 'c'], ['b', 'c', 'x'])).toEqual(['c', 'b', 'x']))
})
