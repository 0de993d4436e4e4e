import { describe, expect, it } from 'vitest'
import { besideMain, columnsFor, corner, grid, mainGrid, neighbour, perPage, type Rect } from '../src/call/grid'
import { pageOf, PAGER, type Seat } from '../src/call/pages'
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

  it.each([1, 2, 3, 4, 5, 6, 7, 8, 9, 25])('%i tiles lie on the stage, apart, in every stage', (count) => {
    for (const stage of [desktop, phone, { width: 320, height: 440 }, { width: 1032, height: 772 }, { width: 844, height: 262 }]) {
      const beside = Math.min(count - 1, besideMain(stage))
      for (const rects of [grid(Math.min(count, perPage(stage)), stage), mainGrid(beside, stage)]) {
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
      const above = corner(stage, last, 1)
      expect(above.top + above.height + 8).toBe(rect.top)
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

describe('pages', () => {
  const people = (count: number): Seat[] => Array.from({ length: count }, (_, n) => ({ key: `p${n}`, own: false, screen: false }))
  const own = { key: 'me', own: true, screen: false }
  const screen = (key: string, mine = false) => ({ key: `${key}/screen`, own: mine, screen: true })
  const keys = (seats: readonly Seat[]) => seats.map((seat) => seat.key)

  it.each([
    [desktop, 25],
    [{ width: 768, height: 772 }, 12],
    [phone, 6],
  ])('%o holds %i tiles a page, one’s own among them', (stage, size) => {
    const fits = pageOf([...people(size - 1), own], null, 0, stage)
    expect(fits).toMatchObject({ pages: 1, first: 0, floats: false })
    expect(fits.beside).toHaveLength(size)
    const many = pageOf([...people(size), own], null, 1, stage)
    expect(many).toMatchObject({ page: 1, pages: 2, first: size - 1 })
    expect(keys(many.beside)).toEqual([`p${size - 1}`, 'me'])
  })
  it('shows each of hundreds of people on exactly one page', () => {
    const tiles = [...people(311), own]
    const { pages } = pageOf(tiles, null, 0, desktop)
    const seen = Array.from({ length: pages }, (_, n) => keys(pageOf(tiles, null, n, desktop).beside)).flat()
    expect(pages).toBe(13)
    expect(seen.filter((key) => key !== 'me')).toEqual(keys(people(311)))
  })
  it('stays on the last page there is when people leave', () => {
    expect(pageOf([...people(30), own], null, 7, desktop)).toMatchObject({ page: 1, pages: 2 })
  })
  it('floats one’s own tile with up to two others, not over a screen, and not when it is large', () => {
    expect(pageOf([...people(2), own], null, 0, desktop)).toMatchObject({ floats: true, main: null })
    expect(pageOf([...people(3), own], null, 0, desktop).floats).toBe(false)
    expect(pageOf([...people(2), screen('p0'), own], null, 0, desktop).floats).toBe(false)
    expect(pageOf([...people(2), own], 'me', 0, desktop)).toMatchObject({ floats: false, main: { key: 'me' } })
    expect(pageOf([own], null, 0, desktop).floats).toBe(false)
    const sharing = pageOf([...people(2), screen('me', true), own], null, 0, desktop)
    expect([sharing.floats, keys(sharing.beside)]).toEqual([true, ['p0', 'p1', 'me/screen', 'me']])
  })
  it('gives the stage to what is pinned, else to the newest of others’ screens, never to one’s own by itself', () => {
    const tiles = [...people(4), screen('p1'), screen('p3'), screen('me', true), own]
    expect(pageOf(tiles, null, 0, desktop).main?.key).toBe('p3/screen')
    expect(keys(pageOf(tiles, null, 0, desktop).beside).slice(0, 2)).toEqual(['p1/screen', 'p0'])
    expect(keys(pageOf(tiles, null, 0, desktop).beside).slice(-2)).toEqual(['me/screen', 'me'])
    expect(pageOf(tiles, 'p0', 0, desktop).main?.key).toBe('p0')
    expect(pageOf([...people(4), screen('me', true), own], null, 0, desktop).main).toBeNull()
  })
  it('puts small tiles below a large one where the stage stands upright, wide enough for pictures', () => {
    const [main, first] = mainGrid(4, { width: 768, height: 896 })
    expect(main?.width).toBe(752)
    expect(first?.top).toBeGreaterThan(main?.height ?? 0)
    expect(first?.width).toBeGreaterThan(160)
  })
  it.each([desktop, phone, { width: 768, height: 772 }])('pages what does not fit beside a large tile of %o', (stage) => {
    const tiles = [...people(40), screen('p1'), own]
    const page = pageOf(tiles, null, 0, stage)
    const area = { width: stage.width, height: stage.height - PAGER }
    const rects = mainGrid(page.beside.length, area)
    expect(page.pages).toBeGreaterThan(1)
    expect(page.first).toBe(page.beside.length - 1)
    for (const rect of rects) {
      expect(rect.top + rect.height).toBeLessThanOrEqual(area.height + 0.01)
      expect(rect.width).toBeGreaterThan(60)
    }
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
