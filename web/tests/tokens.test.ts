import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { ciede2000, contrast, simulate, type Rgb } from './colour'

const css = readFileSync(new URL('../src/tokens.css', import.meta.url), 'utf8')
const hex = (text: string): Rgb => [1, 3, 5].map((at) => Number.parseInt(text.slice(at, at + 2), 16) / 255) as unknown as Rgb

/** Tokens of both themes, from the file that the pages use. */
const pairs = new Map([...css.matchAll(/--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g)].map((m) => [m[1] ?? '', [m[2] ?? '', m[3] ?? ''] as const]))
const single = (name: string) => hex(new RegExp(`--${name}: (#[0-9a-f]{6})`).exec(css)?.[1] ?? '')
const states = ['good', 'fair', 'poor', 'none'] as const

describe.each(['light', 'dark'] as const)('tokens, %s', (theme) => {
  const get = (name: string): Rgb => {
    const pair = pairs.get(name)
    if (!pair) throw new Error(`no token ${name}`)
    return hex(pair[theme === 'light' ? 0 : 1])
  }
  const grounds = ['bg', 'surface', 'raised'].map(get)
  const worst = (name: string, on = grounds) => Math.min(...on.map((ground) => contrast(get(name), ground)))

  it('has text to be read on every ground', () => {
    expect(worst('text')).toBeGreaterThanOrEqual(theme === 'light' ? 15.6 : 12.7)
    expect(worst('muted')).toBeGreaterThanOrEqual(6.4)
    expect(worst('muted', states.map((state) => get(`${state}-tint`)))).toBeGreaterThanOrEqual(5.7)
    expect(worst('accent')).toBeGreaterThanOrEqual(5.8)
    expect(worst('text', [get('selected')])).toBeGreaterThanOrEqual(11.7)
    expect(contrast(get('on-accent'), get('accent'))).toBeGreaterThanOrEqual(6.6)
    expect(contrast(get('on-danger'), get('danger'))).toBeGreaterThanOrEqual(6.2)
  })

  it('has lines of plots that are seen on every ground, and told apart by every eye', () => {
    expect(Math.min(worst('series-1'), worst('series-2'))).toBeGreaterThanOrEqual(3.5)
    for (const eye of ['all', 'protan', 'deutan', 'tritan'] as const) {
      expect(ciede2000(simulate(get('series-1'), eye), simulate(get('series-2'), eye)), eye).toBeGreaterThanOrEqual(17)
    }
  })

  it('has control borders of 3:1', () => expect(worst('control')).toBeGreaterThanOrEqual(3))

  it.each(states)('shows %s on every ground and its tint', (state) => {
    expect(worst(state, [...grounds, get(`${state}-tint`)])).toBeGreaterThanOrEqual(4.5)
  })

  it('tells the four states apart, for every eye', () => {
    const least = theme === 'light' ? 15 : 18
    for (const eye of ['all', 'protan', 'deutan', 'tritan'] as const) {
      states.forEach((a, index) =>
        states.slice(index + 1).forEach((b) => {
          const distance = ciede2000(simulate(get(a), eye), simulate(get(b), eye))
          expect(distance, `${a} and ${b}, ${eye}`).toBeGreaterThanOrEqual(least)
        }),
      )
    }
  })
})

describe('the stage', () => {
  it('lets white words be read over a white picture', () => {
    const alpha = Number(/--scrim: rgb\(0 0 0 \/ (\d+)%\)/.exec(css)?.[1]) / 100
    const ground: Rgb = [1 - alpha, 1 - alpha, 1 - alpha]
    expect(contrast(single('on-video'), ground)).toBeGreaterThanOrEqual(6.5)
  })
  it('shows the ring beside black and on the tile', () => {
    expect(contrast(single('ring'), single('ring-edge'))).toBeGreaterThanOrEqual(3)
    expect(contrast(single('ring'), single('tile'))).toBeGreaterThanOrEqual(3)
  })
})

describe('the colour arithmetic itself', () => {
  it('knows WCAG 2.2: black on white is 21', () => expect(contrast([0, 0, 0], [1, 1, 1])).toBeCloseTo(21))
  // Pairs 1, 7 and 25 of Sharma, Wu and Dalal, "The CIEDE2000 color-difference formula", 2005, table 1.
  it.each([
    [[50, 2.6772, -79.7751], [50, 0, -82.7485], 2.0425],
    [[50, 0, 0], [50, -1, 2], 2.3669],
    [[60.2574, -34.0099, 36.2677], [60.4626, -34.1751, 39.4387], 1.2644],
  ])('knows CIEDE2000: %o and %o', (a, b, distance) => {
    expect(ciede2000.lab(a as unknown as Rgb, b as unknown as Rgb)).toBeCloseTo(distance, 4)
  })
})
