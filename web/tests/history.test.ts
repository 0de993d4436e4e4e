import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Estimate } from '../src/call/estimate'
import { ceiling, line, remember, type Sample } from '../src/call/history'

const sample = (atMs: number, sentBps: number | null): Sample => ({
  atMs,
  sentBps,
  canSendBps: null,
  gotBps: null,
  canGetBps: null,
  lostUp: null,
  lostDown: null,
})

describe('the last minute', () => {
  it('forgets what is older', () => {
    let past: Sample[] = []
    for (let s = 0; s <= 300; s++) past = remember(past, sample(s * 1000, s))
    expect(past).toHaveLength(61)
    expect(past[0]?.atMs).toBe(240_000)
  })

  it.each([
    [[], 100, 100],
    [[101], 100, 200],
    [[200, null], 100, 200],
    [[201], 100, 500],
    [[501], 100, 1000],
    [[0.06], 0.05, 0.1],
    [[0.04], 0.05, 0.05],
  ])('of %j, and %d at least, is drawn up to %d', (values, least, top) => {
    expect(ceiling(values, least)).toBeCloseTo(top, 9)
  })

  const draw = (...samples: Sample[]) => line(samples, (s) => s.sentBps, 100, { width: 600, height: 50 })
  it('is a line from zero at the lower edge to the top of the scale, with now at the right', () => {
    expect(draw(sample(0, 0), sample(1000, 50), sample(2000, 100), sample(3000, 900))).toBe(
      'M570.0 50.0h0L580.0 25.0L590.0 0.0L600.0 0.0',
    )
  })
  it('has gaps where nothing is known, and where no sample was taken', () => {
    expect(draw(sample(0, 100), sample(1000, null), sample(2000, 100), sample(3000, 100))).toBe(
      'M570.0 0.0h0M590.0 0.0h0L600.0 0.0',
    )
    expect(draw(sample(0, 100), sample(3001, 100))).toBe('M570.0 0.0h0M600.0 0.0h0')
    expect(draw()).toBe('')
  })
})

describe("the server's estimate", () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  it('is asked for each five seconds while somebody looks, and not known for long after', async () => {
    const ask = vi.fn<() => Promise<number | null>>(async () => 2_000_000)
    const estimate = new Estimate(ask)
    await vi.advanceTimersByTimeAsync(20_000)
    expect(ask).not.toHaveBeenCalled()
    const end = estimate.watch()
    await vi.advanceTimersByTimeAsync(10_000)
    expect(ask).toHaveBeenCalledTimes(3)
    expect(estimate.at(performance.now())).toBe(2_000_000)
    ask.mockRejectedValue(new Error('503'))
    await vi.advanceTimersByTimeAsync(10_000)
    expect(estimate.at(performance.now()), 'one answer failed').toBe(2_000_000)
    await vi.advanceTimersByTimeAsync(5_000)
    expect(estimate.at(performance.now())).toBeNull()
    end()
    await vi.advanceTimersByTimeAsync(60_000)
    expect(ask).toHaveBeenCalledTimes(6)
  })
})
