import { describe, expect, it } from 'vitest'
import { retryInS, sayProblem, traceOf, triesAgain, type Problem } from '../src/net/problem'
import { sayDevices, sayUnplugged } from '../src/media/sayDevices'
import { pickNotice, type Causes } from '../src/call/notices'

const problem = (status: number, code: string, more: Partial<Problem> = {}): Problem => ({
  status,
  code,
  detail: '',
  retryAfterS: null,
  trace: null,
  ...more,
})

describe('refusals in the words of the design', () => {
  it.each([
    [problem(429, 'room_full', { detail: 'room standup is full (50 of 50)' }), 'This room is full (50 of 50).', ['tryAgain']],
    [problem(503, 'server_full', { retryAfterS: 20 }), 'The server is full. Next try in 20 s.', ['tryNow']],
    [problem(429, 'too_many', { retryAfterS: 5 }), 'The server is busy. Next try in 5 s.', ['tryNow']],
    [problem(401, 'token_expired'), 'This link has expired. Ask for a new one.', []],
    [problem(401, 'unauthorized'), 'This link does not open standup. Ask for a new one.', []],
    [problem(403, 'forbidden'), 'This link does not open standup. Ask for a new one.', []],
    [problem(403, 'identity_mismatch'), 'This link does not open standup. Ask for a new one.', []],
    [
      problem(406, 'no_common_codec'),
      'This browser cannot make calls. Use a current Chrome, Edge, Firefox or Safari.',
      [],
    ],
    [problem(404, 'replaced'), 'You joined from another place, so this tab left.', ['useThisTab']],
    [problem(404, 'removed'), 'You were removed from this room.', ['startPage']],
    [problem(404, 'client_left'), 'You left standup.', ['joinAgain', 'startPage']],
    [
      problem(404, 'server_shutdown'),
      'The server is shutting down and takes nobody new. Try again in a minute.',
      ['tryAgain'],
    ],
    [problem(500, 'internal'), 'The server answered 500 (internal).', ['tryAgain']],
    [problem(400, 'sdp_malformed'), 'The server answered 400 (sdp_malformed).', ['tryAgain']],
    [problem(0, 'unreachable'), 'We could not reach the server.', ['tryAgain']],
  ])('%o', (refused, text, actions) => {
    expect(sayProblem(refused, 'standup')).toMatchObject({ text, actions, code: refused.code })
  })

  it('tries again by itself only where waiting helps', () => {
    expect(triesAgain(problem(503, 'server_full'))).toBe(true)
    expect(triesAgain(problem(503, 'busy'))).toBe(true)
    expect(triesAgain(problem(429, 'room_full'))).toBe(false)
    expect(triesAgain(problem(503, 'draining'))).toBe(false)
  })

  it('waits 20, 40, 60, 60 s with a tenth of jitter, and never less than asked', () => {
    expect([0, 1, 2, 3].map((attempt) => retryInS(attempt, null, 0.5))).toEqual([20, 40, 60, 60])
    expect(retryInS(0, null, 0)).toBe(18)
    expect(retryInS(0, null, 0.999)).toBe(22)
    expect(retryInS(0, 90, 0.5)).toBe(90)
  })

  it('reads the trace id of a traceresponse', () => {
    expect(traceOf('00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01')).toBe('4bf92f3577b34da6a3ce929d0e0e4736')
    expect(traceOf('nonsense')).toBeNull()
    expect(traceOf(null)).toBeNull()
  })
})

describe('devices', () => {
  const devices = (microphone: string, camera: string, unplugged: unknown = null) =>
    ({ microphone, camera, unplugged, label: () => 'USB mic' }) as Parameters<typeof sayDevices>[0]
  it.each([
    ['asking', 'closed', 'Your browser asks for the camera and microphone. Choose Allow.'],
    [
      'blocked',
      'blocked',
      'Camera and microphone are blocked. Allow them in the site settings beside the address, then try again. You can also join without them.',
    ],
    ['open', 'system', 'Your system keeps this browser from the camera. Allow it in the privacy settings.'],
    ['open', 'missing', 'No camera found. You can join with sound.'],
    ['missing', 'open', 'No microphone found. You can join and listen.'],
    ['open', 'busy', 'Another app is using the camera. Close it and try again.'],
  ])('microphone %s, camera %s', (mic, cam, text) => {
    expect(sayDevices(devices(mic, cam), true, false)?.text).toBe(text)
  })
  it('says nothing of a camera that nobody wants', () => {
    expect(sayDevices(devices('open', 'missing'), false, false)).toBeNull()
  })
  it('names a silent microphone', () => {
    expect(sayDevices(devices('open', 'open'), true, true)?.text).toBe(
      'We hear nothing from USB mic. Is it muted on the device?',
    )
  })
  it('says what took the place of an unplugged device', () => {
    expect(sayUnplugged({ kind: 'microphone', gone: 'USB mic', now: 'Built-in mic' }).text).toBe(
      'USB mic was unplugged. Now using Built-in mic.',
    )
    expect(sayUnplugged({ kind: 'microphone', gone: 'USB mic', now: null })).toEqual({
      text: 'USB mic was unplugged. Others cannot hear you.',
      actions: ['chooseMicrophone'],
    })
  })
})

describe('one notice at a time, worst first', () => {
  const none: Causes = {
    failedS: null,
    never: false,
    heldBack: false,
    mutedBy: null,
    moving: false,
    device: null,
    share: null,
    controlLost: false,
    uploadWeak: false,
    downloadWeak: false,
    spokeMuted: false,
    silent: null,
    undecodable: null,
    unheard: 0,
    unshown: 0,
  }
  it('is silent when all is well', () => expect(pickNotice(none)).toBeNull())
  it('puts a lost connection before everything', () => {
    expect(pickNotice({ ...none, failedS: 60, heldBack: true, uploadWeak: true })).toEqual({
      text: 'We could not reconnect for 60 s.',
      actions: ['tryAgain', 'leave'],
      urgent: true,
    })
  })
  it('says how many people do not fit, and nothing of nobody', () => {
    expect(pickNotice({ ...none, unshown: 1 })?.text).toBe('1 more person is here than this page shows.')
    expect(pickNotice({ ...none, unshown: 2 })?.text).toBe('2 more people are here than this page shows.')
  })
  it('puts held sound before a weak upload', () => {
    expect(pickNotice({ ...none, heldBack: true, uploadWeak: true })?.actions).toEqual(['turnOnSound'])
    expect(pickNotice({ ...none, uploadWeak: true })).toMatchObject({
      text: 'Your upload is weak. Others may see you blurred.',
      actions: ['stopVideo'],
    })
  })
})
