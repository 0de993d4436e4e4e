import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Session } from '../src/call/session.svelte'
import type { Devices } from '../src/media/devices.svelte'
import type { LeaveReason } from '../src/net/events'

// A session over connections and a stream that the test holds. Effects do not run here: only what events do is looked at.
const opened = { play: 0, publish: 0, sections: 0 }
let session: Session
let sessionId = 'PA_ann'

vi.mock('../src/call/peer', async (original) => {
  const transport = (id: string) => ({
    id,
    session: sessionId,
    location: `/transports/${id}`,
    late: [],
    pc: Object.assign(new EventTarget(), {
      connectionState: 'connected',
      iceConnectionState: 'connected',
      getStats: async () => new Map(),
      close: () => undefined,
    }),
  })
  return {
    ...(await original<typeof import('../src/call/peer')>()),
    publish: async () => ({ transport: transport(`TP_publish${++opened.publish}`), audio: {}, video: {} }),
    Playback: {
      open: async (_: unknown, asked: { audio: number }) => {
        opened.sections = asked.audio
        return { transport: transport(`TP_play${++opened.play}`), asked, tracks: new Map(), firstSections: () => new Map() }
      },
    },
  }
})

class Stream extends EventTarget {
  static readonly CLOSED = 2
  static opened: Stream[] = []
  readyState = 1
  constructor(readonly url: string) {
    super()
    Stream.opened.push(this)
  }
  close() {
    this.readyState = Stream.CLOSED
  }
  refuse() {
    this.close()
    this.dispatchEvent(new Event('error'))
  }
}

const ann = {
  identity: 'ann',
  name: 'Ann',
  session: 'PA_ann',
  metadata: '',
  joined_at_ms: 0,
  state: 'connected',
  tracks: [
    { id: 'TR_a', source: 'microphone', kind: 'audio', codec: 'opus', muted: false },
    { id: 'TR_v', source: 'camera', kind: 'video', codec: 'vp8', muted: false },
  ],
}
const kim = { ...ann, identity: 'kim', name: 'Kim', session: 'PA_kim', tracks: [] }

const fetched = vi.fn<typeof fetch>()
const closedDevices = vi.fn<(device: string) => void>()
const announced = { polite: '', assertive: '' }

const hear = (event: { event: string; [field: string]: unknown }) =>
  Stream.opened.at(-1)?.dispatchEvent(new MessageEvent(event.event, { data: JSON.stringify(event) }))
const message = (what: string, track: string | null = null, by: string | null = 'kim') =>
  hear({ event: 'message_to_you', what, by, track })
/** Bodies of `PATCH /api/v1/sessions/PA_ann`. */
const patches = () =>
  fetched.mock.calls.flatMap(([path, init]) =>
    path === '/api/v1/sessions/PA_ann' && init?.method === 'PATCH' ? [JSON.parse(String(init.body)) as unknown] : [],
  )

beforeEach(async () => {
  vi.useFakeTimers()
  vi.stubGlobal('window', globalThis)
  vi.stubGlobal('addEventListener', () => undefined)
  vi.stubGlobal('removeEventListener', () => undefined)
  vi.stubGlobal('navigator', {})
  vi.stubGlobal('EventSource', Stream)
  vi.stubGlobal('fetch', fetched)
  const regions = { polite: {}, assertive: {} }
  for (const id of ['polite', 'assertive'] as const) {
    Object.defineProperty(regions[id], 'textContent', { get: () => announced[id], set: (text: string) => (announced[id] = text) })
  }
  vi.stubGlobal('document', { getElementById: (id: 'polite' | 'assertive') => regions[id] })
  fetched.mockImplementation(async () => new Response('{}'))
  Stream.opened = []
  Object.assign(opened, { play: 0, publish: 0 })
  sessionId = 'PA_ann'
  vi.spyOn(console, 'warn').mockImplementation(() => undefined)
  announced.polite = announced.assertive = ''
  const devices = { micTrack: null, camTrack: null, open: async () => undefined, close: closedDevices }
  session = await Session.join(
    { room: 'standup', name: 'Ann', pass: { token: 't', identity: 'ann' }, publishes: true, micOn: true, camOn: true, others: 1 },
    devices as unknown as Devices,
  )
  hear({ event: 'snapshot', room: { participants: [ann, kim] }, sections: [], you: 'PA_ann', speakers: [] })
})

afterEach(() => {
  session.leave()
  vi.useRealTimers()
  vi.unstubAllGlobals()
  vi.clearAllMocks()
})

describe('a message to us', () => {
  const MUTED = 'Kim (host) muted you. Press M to unmute.'

  it('muted: the microphone is off, and it is said who did it', () => {
    message('muted', 'TR_a')
    expect(session).toMatchObject({ micOn: false, camOn: true, mutedBy: MUTED })
    expect(announced.assertive).toBe(MUTED)
  })

  it('unmuted: the notice goes, the microphone stays off, and the server is told that it is', async () => {
    message('muted', 'TR_a')
    announced.assertive = ''
    message('unmuted', 'TR_a')
    await vi.advanceTimersByTimeAsync(0)
    expect(session).toMatchObject({ micOn: false, mutedBy: null, over: null })
    expect(announced).toEqual({ polite: '', assertive: '' })
    expect(patches()).toEqual([{ muted: { TR_a: true } }])
  })

  it('unmuted after our own person was quicker: nothing changes', async () => {
    message('muted', 'TR_a')
    await session.setMic(true)
    message('unmuted', 'TR_a')
    await vi.advanceTimersByTimeAsync(0)
    expect(session).toMatchObject({ micOn: true, mutedBy: null })
    expect(patches()).toEqual([])
  })

  it('of the camera says nothing of the microphone', () => {
    message('muted', 'TR_v')
    expect(session).toMatchObject({ micOn: true, camOn: false, mutedBy: null })
    expect(closedDevices).toHaveBeenCalledWith('camera')
    message('muted', 'TR_a')
    message('unmuted', 'TR_v')
    expect(session).toMatchObject({ camOn: false, mutedBy: MUTED })
  })

  it('removed', () => {
    message('removed')
    expect(session.over).toEqual({ text: 'Kim (host) removed you from this room.', actions: ['startPage'] })
  })
  it('replaced', () => {
    message('replaced', null, null)
    expect(session.over).toEqual({ text: 'You joined from another place, so this tab left.', actions: ['useThisTab'] })
  })
  it('moving', () => {
    message('moving', null, null)
    expect(session).toMatchObject({ moving: true, micOn: true, over: null })
  })
  it('join_again: both connections are made anew', async () => {
    message('join_again', null, null)
    await vi.advanceTimersByTimeAsync(100)
    expect(opened).toMatchObject({ play: 2, publish: 2 })
    expect(session.over).toBeNull()
  })
  it('muted, of the screen: it stops, and the microphone stays', () => {
    hear({ event: 'track_published', identity: 'ann', track: { id: 'TR_s', source: 'screen', kind: 'video', codec: 'vp8', muted: false } })
    message('muted', 'TR_s')
    expect(session).toMatchObject({ micOn: true, camOn: true, mutedBy: null })
    expect(session.screen.refused?.text).toBe('Kim (host) stopped your screen.')
  })

  it.each(['promoted', ''])('“%s” is not known and changes nothing', async (what) => {
    message(what, 'TR_a')
    await vi.advanceTimersByTimeAsync(0)
    expect(session).toMatchObject({ micOn: true, camOn: true, mutedBy: null, moving: false, over: null })
    expect(session.link.state).toBe('connected')
    expect(announced).toEqual({ polite: '', assertive: '' })
  })
})

describe('layers that the server wants', () => {
  const layers = [{ rid: 'q', wanted: true }, { rid: 'f', wanted: false }]
  const sender = (...rids: string[]) => {
    const encodings = rids.map((rid) => ({ rid, active: true }))
    return { getParameters: () => ({ encodings }), setParameters: vi.fn(async () => undefined), encodings }
  }
  it('are switched at the sender of their track, and at no other', () => {
    const [camera, screen] = [sender('q', 'f'), sender('q', 'f')]
    Object.assign(session.publication ?? {}, { video: camera })
    hear({ event: 'track_published', identity: 'ann', track: { id: 'TR_s', source: 'screen', kind: 'video', codec: 'vp8', muted: false } })
    Object.assign(session.screen, { publication: { transport: session.publication?.transport, video: screen } })
    hear({ event: 'layers_wanted', track: 'TR_v', layers })
    hear({ event: 'layers_wanted', track: 'TR_gone', layers })
    expect(camera.encodings.map(({ active }) => active)).toEqual([true, false])
    expect(screen.setParameters).not.toHaveBeenCalled()
    hear({ event: 'layers_wanted', track: 'TR_s', layers: [{ rid: null, wanted: false }] })
    expect(screen.encodings.map(({ active }) => active)).toEqual([false, false])
    expect(camera.setParameters).toHaveBeenCalledOnce()
  })
})

describe('the room is over', () => {
  const finished = (reason: LeaveReason, by: string | null) => ({ event: 'room_finished', reason, by })
  it('because a host ended it', () => {
    hear(finished('room_closed', 'kim'))
    expect(session.over?.text).toMatch(/^Kim \(host\) ended this call at \d\d:\d\d\.$/)
  })
  it('because the server goes away', () => {
    hear(finished('server_shutdown', null))
    expect(session.over).toEqual({
      text: 'The server is shutting down and takes nobody new. Try again in a minute.',
      actions: ['tryAgain'],
    })
  })
})

describe('a refused stream: the session tells why', () => {
  const refuse = async (status: number, code: string) => {
    fetched.mockImplementation(async () => new Response(JSON.stringify({ code }), { status }))
    Stream.opened.at(-1)?.refuse()
    await vi.advanceTimersByTimeAsync(0)
  }

  it.each([
    [404, 'replaced', 'You joined from another place, so this tab left.'],
    [404, 'removed', 'You were removed from this room.'],
    [404, 'client_left', 'You left standup.'],
    [404, 'server_shutdown', 'The server is shutting down and takes nobody new. Try again in a minute.'],
    [401, 'token_expired', 'This link has expired. Ask for a new one.'],
    [403, 'forbidden', 'This link does not open standup. Ask for a new one.'],
  ])('%i %s ends it', async (status, code, text) => {
    await refuse(status, code)
    expect(session.over).toMatchObject({ text, code })
  })
  it('404 room_closed ends it, with the time', async () => {
    await refuse(404, 'room_closed')
    expect(session.over?.text).toMatch(/^This call ended at \d\d:\d\d\.$/)
  })

  it.each(['connection_lost', 'dtls_failed', 'server_error', 'moved', 'session_not_found', 'join_timeout', 'constructor'])(
    '404 %s after the join: both connections are made anew, and the stream follows the new session',
    async (code) => {
      await vi.advanceTimersByTimeAsync(600)
      expect(session.link.state).toBe('connected')
      sessionId = 'PA_again'
      await refuse(404, code)
      await vi.advanceTimersByTimeAsync(100)
      expect(session.over).toBeNull()
      expect(opened).toMatchObject({ play: 2, publish: 2 })
      expect(session.id).toBe('PA_again')
      expect(session.me.transport).toBe('TP_play2')
      expect(Stream.opened.at(-1)?.url).toContain('session=PA_again')
      // The server tells the old connection that the new one took its place: that was ourselves.
      message('replaced', null, null)
      expect(session.over).toBeNull()
      await vi.advanceTimersByTimeAsync(70_000)
      message('replaced', null, null)
      expect(session.over?.text).toBe('You joined from another place, so this tab left.')
    },
  )
  it('404 join_timeout while joining: no media path opened', async () => {
    session.link.state = 'joining'
    await refuse(404, 'join_timeout')
    expect(session.over).toBeNull()
    expect(session.link.state).toBe('never')
  })

  it.each([
    [503, 'busy'],
    [429, 'too_many_streams'],
    [200, ''],
  ])('%i %s: it goes on, and the stream is opened again', async (status, code) => {
    await refuse(status, code)
    expect(session.over).toBeNull()
    expect(session.link.state).toBe('connected')
    expect(Stream.opened).toHaveLength(1)
    await vi.advanceTimersByTimeAsync(3000)
    expect(Stream.opened).toHaveLength(2)
  })

  it('says nothing to one who has left meanwhile', async () => {
    fetched.mockImplementation(async () => new Response(JSON.stringify({ code: 'client_left' }), { status: 404 }))
    Stream.opened.at(-1)?.refuse()
    session.leave()
    await vi.advanceTimersByTimeAsync(0)
    expect(session.over).toBeNull()
    expect(announced.assertive).toBe('')
  })
})
