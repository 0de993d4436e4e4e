import { describe, expect, it } from 'vitest'
import { identityFor, initials, isName, readAddress, readClaims } from '../src/net/names'
import { iceOf, sectionsOf, trickleFragment, withPairs } from '../src/net/sdp'
import { loudness } from '../src/media/level'

const answer = [
  'v=0',
  'o=- 1 2 IN IP4 127.0.0.1',
  's=-',
  't=0 0',
  'a=group:BUNDLE 0 1 2',
  'm=audio 9 UDP/TLS/RTP/SAVPF 111',
  'c=IN IP4 0.0.0.0',
  'a=mid:0',
  'a=sendonly',
  'a=msid:bob TR_aaa',
  'a=ice-ufrag:EsAw',
  'a=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1',
  'm=video 9 UDP/TLS/RTP/SAVPF 96',
  'c=IN IP4 0.0.0.0',
  'a=mid:1',
  'a=sendonly',
  'a=ssrc:77 cname:x',
  'a=ssrc:77 msid:bob TR_bbb',
  'a=msid:bob TR_bbb',
  'm=video 9 UDP/TLS/RTP/SAVPF 96',
  'c=IN IP4 0.0.0.0',
  'a=mid:2',
  'a=sendonly',
  '',
].join('\r\n')

describe('SDP', () => {
  it('reads who is where', () => {
    expect(sectionsOf(answer)).toEqual([
      { mid: '0', kind: 'audio', msid: { stream: 'bob', track: 'TR_aaa' } },
      { mid: '1', kind: 'video', msid: { stream: 'bob', track: 'TR_bbb' } },
      { mid: '2', kind: 'video', msid: null },
    ])
  })

  it('pairs sections and changes nothing else', () => {
    const changed = withPairs(answer)
    expect(sectionsOf(changed).map((section) => section.msid?.stream)).toEqual(['pair-0', 'pair-0', 'pair-1'])
    const rest = (sdp: string) => sdp.split('\r\n').filter((line) => !line.includes('msid'))
    expect(rest(changed)).toEqual(rest(answer))
    expect(changed.match(/a=msid:/g)).toHaveLength(3)
  })

  it('writes a trickle fragment as RFC 9725 §4.3.2 shows it', () => {
    expect(iceOf(answer)).toEqual({ ufrag: 'EsAw', pwd: 'P2uYro0UCOQ4zxjKXaWCBui1' })
    expect(trickleFragment(answer, ['candidate:1387637174 1 udp 2122260223 192.0.2.1 61764 typ host'], true)).toBe(
      [
        'm=audio 9 UDP/TLS/RTP/SAVPF 111',
        'a=mid:0',
        'a=ice-ufrag:EsAw',
        'a=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1',
        'a=candidate:1387637174 1 udp 2122260223 192.0.2.1 61764 typ host',
        'a=end-of-candidates',
        '',
      ].join('\r\n'),
    )
    expect(trickleFragment('v=0\r\n', [], true)).toBeNull()
  })
})

describe('names', () => {
  it('takes what the server takes', () => {
    expect(isName('standup')).toBe(true)
    expect(isName('a.b_c~d@e:f-1')).toBe(true)
    expect(isName('a b')).toBe(false)
    expect(isName('ä')).toBe(false)
    expect(isName('')).toBe(false)
    expect(isName('x'.repeat(129))).toBe(false)
  })
  it('makes an identity that the server takes from any name', () => {
    for (const name of ['Ann', 'Zoë van den Berg', '李雷', '  ', 'x'.repeat(300)]) {
      const identity = identityFor(name, [0, 0.3, 0.6, 0.999])
      expect(isName(identity)).toBe(true)
      expect(identity).toMatch(/^[a-z0-9-]+-[a-z2-9]{4}$/)
    }
    expect(identityFor('Ann', [0, 0, 0, 0])).toBe('ann-aaaa')
    expect(identityFor('Zoë van den Berg', [0, 0, 0, 0])).toBe('zoe-van-den-berg-aaaa')
  })
  it('shortens names', () => {
    expect(initials('Ida Lindqvist')).toBe('IL')
    expect(initials('bob')).toBe('B')
    expect(initials('')).toBe('?')
  })
  it('reads the address', () => {
    const read = (path: string) => readAddress(new URL(path, 'https://x'))
    expect(read('/')).toEqual({ page: 'meet', room: null, token: null })
    expect(read('/?room=standup&access_token=t')).toEqual({ page: 'meet', room: 'standup', token: 't' })
    expect(read('/?room=standup#token=t')).toEqual({ page: 'meet', room: 'standup', token: 't' })
    expect(read('/watch/town%20hall')).toEqual({ page: 'watch', room: 'town hall', token: null })
    expect(read('/watch/%')).toEqual({ page: 'watch', room: '%', token: null })
  })
  it('reads claims, and nothing from what is no token', () => {
    const token = (claims: object) => `x.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.y`
    expect(readClaims(token({ sub: 'ann', name: 'Ännchen', video: { room: 'standup', canPublish: false } }))).toEqual({
      identity: 'ann',
      name: 'Ännchen',
      room: 'standup',
      canPublish: false,
    })
    expect(readClaims(token({}))).toEqual({ identity: null, name: null, room: null, canPublish: true })
    expect(readClaims('nonsense')).toBeNull()
  })
})

describe('level', () => {
  it('maps −60…0 dB to 0…1', () => {
    expect(loudness(new Float32Array(8))).toBe(0)
    expect(loudness(new Float32Array(8).fill(1))).toBe(1)
    expect(loudness(new Float32Array(8).fill(10 ** (-30 / 20)))).toBeCloseTo(0.5)
    expect(loudness(new Float32Array(8).fill(10 ** (-70 / 20)))).toBe(0)
  })
})
