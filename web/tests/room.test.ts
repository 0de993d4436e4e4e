import { describe, expect, it } from 'vitest'
import type { ParticipantInfo, RoomEvent, TrackInfo } from '../src/net/events'
import { emptyRoom, midsOf, reduce, missed, trackIds, type Room } from '../src/call/room'
import { Ring } from '../src/call/ring'
import { rate, Steady, type Measured } from '../src/call/quality'

const me = { identity: 'ann-0000', transport: 'TP_me' }
const track = (id: string, source: TrackInfo['source'], muted = false): TrackInfo => ({
  id,
  source,
  kind: source === 'camera' ? 'video' : 'audio',
  codec: null,
  muted,
})
const person = (identity: string, ...tracks: TrackInfo[]): ParticipantInfo => ({
  identity,
  name: identity,
  session: `PA_${identity}`,
  metadata: '',
  joined_at_ms: 0,
  state: 'connected',
  tracks,
})
const play = (events: RoomEvent[], from: Room = emptyRoom) => events.reduce((room, event) => reduce(room, event, me), from)

/** A participant's track of a source, and the section that carries it. */
const sectionOf = (room: Room, identity: string, source: TrackInfo['source']) => {
  const found = room.participants.get(identity)?.tracks.find((t) => t.source === source) ?? null
  return { track: found, mid: found && (midsOf(room).get(found.id) ?? null) }
}

const bob = person('bob', track('TR_1', 'microphone'), track('TR_2', 'camera'))
const snapshot: RoomEvent = {
  event: 'snapshot',
  room: {
    id: 'RM_1',
    name: 'standup',
    kind: 'call',
    worker: 0,
    created_at_ms: 0,
    max_participants: 500,
    metadata: '',
    participants: [bob, person('ann-0000', track('TR_3', 'microphone'))],
  },
  sections: [
    { transport: 'TP_me', mid: '0', track: 'TR_1', identity: 'bob' },
    { transport: 'TP_me', mid: '8', track: 'TR_2', identity: 'bob' },
    { transport: 'TP_other', mid: '1', track: 'TR_3', identity: 'ann-0000' },
  ],
  you: 'PA_ann-0000',
  speakers: ['bob'],
}

describe('the room as its events tell it', () => {
  it('knows of connections what the newest snapshot and the events since say, of those who are there', () => {
    const weak: RoomEvent = { event: 'quality', identity: 'bob', up: { quality: 'poor', cause: 'loss' }, down: null }
    expect(play([snapshot, weak]).quality.get('bob')?.up?.quality).toBe('poor')
    expect(play([snapshot, weak, snapshot]).quality.size).toBe(0)
    const { room } = snapshot
    const known = { ...snapshot, room: { ...room, participants: room.participants.map((p) => ({ ...p, quality: weak })) } }
    expect(play([known]).quality.get('bob')?.up?.quality).toBe('poor')
    const left: RoomEvent = { event: 'participant_left', identity: 'bob', session: 'PA_bob', reason: 'client_left' }
    expect(play([snapshot, weak, left]).quality.size).toBe(0)
  })
  it('starts from a snapshot, without a place for oneself', () => {
    const room = play([snapshot])
    expect(room.places).toEqual(['bob'])
    expect(room.known).toBe(true)
    expect([...room.sections.keys()]).toEqual(['0', '8'])
    expect(sectionOf(room, 'bob', 'camera')).toMatchObject({ mid: '8', track: { id: 'TR_2' } })
    expect(trackIds(room, me.identity).get('microphone')).toBe('TR_3')
  })

  it('follows a section from one track to the next, and frees it', () => {
    const cy = person('cy', track('TR_9', 'camera'))
    const room = play([
      snapshot,
      { event: 'participant_joined', participant: cy },
      { event: 'section_assigned', transport: 'TP_me', mid: '8', track: 'TR_9', identity: 'cy' },
      { event: 'section_assigned', transport: 'TP_other', mid: '8', track: 'TR_3', identity: 'x' },
      { event: 'section_assigned', transport: 'TP_me', mid: '0', track: null, identity: null },
    ])
    expect(sectionOf(room, 'cy', 'camera').mid).toBe('8')
    expect(sectionOf(room, 'bob', 'camera').mid).toBeNull()
    expect(room.sections.has('0')).toBe(false)
  })

  it('takes a section that is told before its track', () => {
    const room = play([
      snapshot,
      { event: 'section_assigned', transport: 'TP_me', mid: '1', track: 'TR_8', identity: 'cy' },
      { event: 'participant_joined', participant: person('cy') },
      { event: 'track_published', identity: 'cy', track: track('TR_8', 'microphone') },
    ])
    expect(sectionOf(room, 'cy', 'microphone').mid).toBe('1')
  })

  it('mutes and unmutes one track', () => {
    const muted = play([snapshot, { event: 'track_muted', identity: 'bob', track: track('TR_1', 'microphone', true) }])
    expect(muted.participants.get('bob')?.tracks.map((t) => t.muted)).toEqual([true, false])
    const again = play([{ event: 'track_unmuted', identity: 'bob', track: track('TR_1', 'microphone') }], muted)
    expect(again.participants.get('bob')?.tracks.map((t) => t.muted)).toEqual([false, false])
  })

  it('knows a leaver by the session: news of an older stay end nothing', () => {
    const older = play([snapshot, { event: 'participant_left', identity: 'bob', session: 'PA_older', reason: 'replaced' }])
    expect(older.places).toEqual(['bob'])
    const left = play([snapshot, { event: 'participant_left', identity: 'bob', session: 'PA_bob', reason: 'client_left' }])
    expect(left.places).toEqual([])
    expect(left.speakers).toEqual([])
  })

  it('shows no tile for one who only watches', () => {
    const room = play([snapshot, { event: 'participant_joined', participant: person('guest-abc123') }])
    expect(room.places).toEqual(['bob'])
  })

  it('keeps the answer’s sections where a snapshot has none of ours', () => {
    const from: Room = { ...emptyRoom, sections: new Map([['4', { track: 'TR_2', identity: 'bob' }]]) }
    const room = play([{ ...snapshot, sections: [] } as RoomEvent], from)
    expect(sectionOf(room, 'bob', 'camera').mid).toBe('4')
  })

  it('takes a track that is published again with another codec as the same one', () => {
    const vp8 = { ...track('TR_2', 'camera'), codec: 'vp8' }
    const room = play([
      snapshot,
      { event: 'track_published', identity: 'bob', track: vp8 },
      { event: 'track_published', identity: 'bob', track: { ...vp8, codec: 'h264' } },
    ])
    expect(room.participants.get('bob')?.tracks.map(({ id, codec }) => [id, codec])).toEqual([
      ['TR_1', null],
      ['TR_2', 'h264'],
    ])
    expect(sectionOf(room, 'bob', 'camera')).toMatchObject({ mid: '8', track: { id: 'TR_2', codec: 'h264' } })
  })

  it('holds a track undecodable only in the codec that it was told of', () => {
    const av1 = { ...track('TR_2', 'camera'), codec: 'av1' }
    const unsupported: RoomEvent = { event: 'codec_unsupported', transport: 'TP_me', track: 'TR_2', codec: 'av1' }
    const cannot = play([snapshot, { event: 'track_published', identity: 'bob', track: av1 }, unsupported])
    expect(cannot.undecodable.has('TR_2')).toBe(true)
    const muted = play([{ event: 'track_muted', identity: 'bob', track: { ...av1, muted: true } }], cannot)
    expect(muted.undecodable.has('TR_2')).toBe(true)
    const vp8 = play([{ event: 'track_published', identity: 'bob', track: { ...av1, codec: 'vp8' } }], muted)
    expect(vp8.undecodable.has('TR_2')).toBe(false)
    // Told before the track: it is of the codec to come.
    const before = play([unsupported, { event: 'track_published', identity: 'bob', track: av1 }], vp8)
    expect(before.undecodable.has('TR_2')).toBe(true)
  })

  it('does not change what it was given', () => {
    const before = play([snapshot])
    const copy = structuredClone(before)
    play([{ event: 'track_unpublished', identity: 'bob', track: track('TR_2', 'camera'), reason: 'client_left' }], before)
    expect(before).toEqual(copy)
  })
})

describe('who does not fit', () => {
  const full = (missing: number, transport = 'TP_me'): RoomEvent => ({ event: 'sections_full', transport, missing })
  const cy = person('cy', track('TR_8', 'microphone'), track('TR_9', 'camera'))
  const dana = person('dana', track('TR_10', 'microphone'), track('TR_11', 'camera'))
  const joined = (participant: ParticipantInfo): RoomEvent => ({ event: 'participant_joined', participant })
  /** People who are not heard, or not seen. */
  const unshown = (room: Room, who: typeof me, shown: ReadonlySet<string>) => {
    const { unheard, unshown } = missed(room, who, shown)
    return Math.max(unheard, unshown)
  }
  const seen = new Set(['TR_9', 'TR_11'])

  it('leaves out pictures of another page, not sound', () => {
    const heard: RoomEvent = { event: 'section_assigned', transport: 'TP_me', mid: '1', track: 'TR_8', identity: 'cy' }
    expect(unshown(play([snapshot, joined(cy), heard, full(1)]), me, new Set())).toBe(0)
    expect(unshown(play([snapshot, joined(cy), full(2)]), me, new Set())).toBe(1)
  })
  it('leaves out who is muted', () => {
    const muted = person('cy', track('TR_8', 'microphone', true), track('TR_9', 'camera', true))
    expect(unshown(play([snapshot, joined(muted), full(2)]), me, seen)).toBe(0)
  })

  it('counts people, not their tracks', () => {
    const one = play([snapshot, joined(cy), full(1), full(2)])
    expect(unshown(one, me, seen)).toBe(1)
    const two = play([joined(dana), full(4)], one)
    expect(unshown(two, me, seen)).toBe(2)
  })

  it('counts one whose sound has a section and whose picture has none', () => {
    const room = play([
      snapshot,
      joined(cy),
      { event: 'section_assigned', transport: 'TP_me', mid: '1', track: 'TR_8', identity: 'cy' },
      full(1),
    ])
    expect(unshown(room, me, seen)).toBe(1)
  })

  it('is over when the server says 0', () => {
    expect(unshown(play([snapshot, joined(cy), full(2), full(0)]), me, seen)).toBe(0)
  })

  it('is nobody while a new track waits for its section, nor because of another transport', () => {
    expect(unshown(play([snapshot, joined(cy)]), me, seen)).toBe(0)
    // Dana is told, her sections come next.
    expect(unshown(play([snapshot, joined(cy), full(1), joined(dana)]), me, seen)).toBe(1)
    expect(unshown(play([snapshot, joined(cy), full(2, 'TP_other')]), me, seen)).toBe(0)
  })

  it('leaves out oneself and what cannot be decoded', () => {
    const cannot: RoomEvent = { event: 'codec_unsupported', transport: 'TP_me', track: 'TR_9', codec: 'av1' }
    const blind = person('cy', track('TR_9', 'camera'))
    expect(unshown(play([snapshot, joined(blind), full(1), cannot]), me, seen)).toBe(0)
  })

  it('is known from a snapshot: the event of the join came before the stream', () => {
    if (snapshot.event !== 'snapshot') throw new Error()
    const crowded: RoomEvent = {
      ...snapshot,
      room: { ...snapshot.room, participants: [...snapshot.room.participants, cy, dana] },
    }
    const room = play([crowded])
    expect(unshown(room, me, seen)).toBe(2)
    expect(unshown(play([{ ...crowded, you: null }]), me, seen)).toBe(0)
    // A later snapshot, after a gap in the stream, is the newer truth.
    expect(unshown(play([snapshot], room), me, seen)).toBe(0)
  })
})

describe('speaker ring', () => {
  it('lights after 300 ms, and goes out 1 s after the last word', () => {
    const ring = new Ring()
    ring.heard(['bob'], 0)
    expect(ring.at(299)).toEqual({ lit: new Set(), nextMs: 300 })
    expect(ring.at(300).lit).toEqual(new Set(['bob']))
    ring.heard([], 2000)
    expect(ring.at(2999)).toEqual({ lit: new Set(['bob']), nextMs: 3000 })
    expect(ring.at(3000)).toEqual({ lit: new Set(), nextMs: null })
  })
  it('does not light for a cough, nor flicker in a pause', () => {
    const ring = new Ring()
    ring.heard(['bob'], 0)
    ring.heard([], 200)
    expect(ring.at(400).lit.size).toBe(0)
    ring.heard(['bob'], 1000)
    ring.at(1300)
    ring.heard([], 1500)
    ring.heard(['bob'], 2200)
    expect(ring.at(9000).lit).toEqual(new Set(['bob']))
  })
})

describe('quality', () => {
  const well: Measured = { loss: 0, rttMs: 30, freezeMs: 0, concealed: 0, silentMs: 0 }
  it.each<[Partial<Measured>, string]>([
    [{}, 'good'],
    [{ loss: 0.02, rttMs: 200 }, 'good'],
    [{ loss: 0.021 }, 'fair'],
    [{ rttMs: 201 }, 'fair'],
    [{ loss: 0.051 }, 'poor'],
    [{ rttMs: 401 }, 'poor'],
    [{ freezeMs: 1000 }, 'poor'],
    [{ concealed: 0.051 }, 'poor'],
    [{ silentMs: 15_000 }, 'none'],
    [{ loss: null, rttMs: null }, 'none'],
  ])('%o is %s', (bad, quality) => expect(rate({ ...well, ...bad })).toBe(quality))

  it('gets worse after 3 s and better after 10 s', () => {
    const steady = new Steady()
    expect(steady.next('good', 0)).toBe('good')
    expect(steady.next('poor', 1000)).toBe('good')
    expect(steady.next('poor', 3999)).toBe('good')
    expect(steady.next('poor', 4000)).toBe('poor')
    expect(steady.next('good', 5000)).toBe('poor')
    expect(steady.next('poor', 9000)).toBe('poor')
    expect(steady.next('good', 10_000)).toBe('poor')
    expect(steady.next('good', 19_999)).toBe('poor')
    expect(steady.next('good', 20_000)).toBe('good')
  })
})
