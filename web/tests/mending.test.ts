import { describe, expect, it } from 'vitest'
import { backoffMs } from '../src/call/backoff'
import { Link } from '../src/call/link.svelte'
import { Pulse } from '../src/call/pulse'
import { withRestart } from '../src/net/sdp'

/** A pulse that was read every 500 ms from 0 to `untilMs`, with packets in each step. */
function steady(untilMs: number): Pulse {
  const pulse = new Pulse(0)
  for (let ms = 0; ms <= untilMs; ms += 500) pulse.note({ packets: ms + 1, checks: 0 }, ms)
  return pulse
}

describe('the pulse of a connection', () => {
  it('flows while packets come, and is lost 2 s after the last', () => {
    const pulse = steady(5000)
    expect([pulse.flows(5500), pulse.suspect(6400), pulse.lost(6900)]).toEqual([true, false, false])
    expect(pulse.flows(6600)).toBe(false)
    expect([pulse.suspect(6500), pulse.lost(7000)]).toEqual([true, true])
    expect(pulse.heardMs).toBe(5000)
  })
  it('is not lost while the server answers checks: then nobody sends', () => {
    const pulse = steady(5000)
    pulse.note({ packets: 5001, checks: 1 }, 6800)
    expect(pulse.lost(7000)).toBe(false)
    expect(pulse.suspect(60_000)).toBe(false)
  })
  it('means something again once packets come one after another', () => {
    const pulse = steady(5000)
    pulse.note({ packets: 5001, checks: 1 }, 6800)
    pulse.note({ packets: 5002, checks: 1 }, 9000)
    expect(pulse.lost(12_000)).toBe(false)
    pulse.note({ packets: 5003, checks: 1 }, 9500)
    expect(pulse.lost(11_500)).toBe(true)
  })
  it('says nothing of a connection that never carried', () => {
    const pulse = new Pulse(0)
    pulse.note({ packets: 0, checks: 0 }, 500)
    expect([pulse.flows(600), pulse.lost(60_000)]).toEqual([false, false])
  })
})

describe('the link in words', () => {
  it('is told lost 2 s after the last packet, counts, and comes back', () => {
    const link = new Link(0)
    link.there(1000)
    expect(link.state).toBe('connected')
    link.gone(10_000, 11_900)
    expect(link.state).toBe('connected')
    link.gone(10_000, 12_000)
    expect([link.state, link.seconds]).toEqual(['lost', 2])
    link.gone(10_000, 14_000)
    expect([link.state, link.seconds]).toEqual(['lost', 4])
    link.there(16_000)
    expect([link.state, link.seconds]).toEqual(['back', 6])
    link.there(19_000)
    expect(link.state).toBe('back')
    link.there(20_100)
    expect(link.state).toBe('connected')
  })
  it('says nothing of less than 2 s', () => {
    const link = new Link(0)
    link.there(1000)
    link.gone(10_000, 11_500)
    link.there(11_800)
    expect(link.state).toBe('connected')
  })
  it('fails after 60 s', () => {
    const link = new Link(0)
    link.there(1000)
    link.gone(10_000, 69_900)
    expect(link.state).toBe('lost')
    link.gone(10_000, 70_000)
    expect([link.state, link.seconds, link.ended]).toEqual(['failed', 60, true])
  })
  it('opens slowly after 5 s, and never after 15 s', () => {
    const link = new Link(0)
    link.opening(false, 5000)
    expect(link.state).toBe('joining')
    link.opening(false, 5100)
    expect(link.state).toBe('slow')
    link.opening(false, 15_100)
    expect(link.state).toBe('never')
    const broken = new Link(0)
    broken.opening(true, 100)
    expect(broken.state).toBe('never')
  })
})

it('tries at once, then with pauses that double up to 4 s, a fifth more or less', () => {
  expect([0, 1, 2, 3, 4, 5, 50].map((attempt) => backoffMs(attempt, 0.5))).toEqual([0, 500, 1000, 2000, 4000, 4000, 4000])
  expect(backoffMs(4, 0)).toBe(3200)
  expect(backoffMs(4, 1)).toBe(4800)
})

describe('an answer after an ICE restart', () => {
  const answer = [
    'v=0',
    'a=ice-lite',
    'm=audio 9 UDP/TLS/RTP/SAVPF 111',
    'a=mid:0',
    'a=ice-ufrag:38sdf4fdsf54',
    'a=ice-pwd:2e13dde17c1cb009202f627fab90cbec358d766d049c9697',
    'a=candidate:1 1 udp 2130706431 198.51.100.2 39132 typ host',
    'a=end-of-candidates',
    'm=video 0 UDP/TLS/RTP/SAVPF 97',
    'a=mid:1',
    'a=ice-ufrag:38sdf4fdsf54',
    'a=ice-pwd:2e13dde17c1cb009202f627fab90cbec358d766d049c9697',
    '',
  ].join('\r\n')
  // The answer of RFC 9725 §4.3.3.
  const fragment = [
    'a=ice-lite',
    'a=ice-options:trickle ice2',
    'a=group:BUNDLE 0 1',
    'm=audio 9 UDP/TLS/RTP/SAVPF 111',
    'a=mid:0',
    'a=ice-ufrag:289b31b754eaa438',
    'a=ice-pwd:0b66f472495ef0ccac7bda653ab6be49ea13114472a5d10a',
    'a=candidate:1 1 udp 2130706431 198.51.100.1 39132 typ host',
    'a=end-of-candidates',
    '',
  ].join('\r\n')

  it('has the new credentials in every section, and the new candidates', () => {
    const changed = withRestart(answer, fragment) ?? ''
    expect(changed.match(/a=ice-ufrag:289b31b754eaa438/g)).toHaveLength(2)
    expect(changed.match(/a=ice-pwd:0b66f472495ef0ccac7bda653ab6be49ea13114472a5d10a/g)).toHaveLength(2)
    expect(changed.match(/a=candidate:/g)).toHaveLength(1)
    expect(changed).toContain('198.51.100.1 39132')
    expect(changed).not.toContain('198.51.100.2')
  })
  it('keeps its candidates where the fragment brings none', () => {
    const bare = fragment.replace(/a=(candidate|end-of-candidates).*\r\n/g, '')
    expect(withRestart(answer, bare)).toContain('198.51.100.2 39132')
  })
  it('is none without credentials', () => {
    expect(withRestart(answer, '')).toBeNull()
    expect(withRestart(answer, 'a=ice-ufrag:x\r\n')).toBeNull()
  })
})
