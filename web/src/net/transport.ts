import { request } from './api'
import { Refused } from './problem'
import { trickleFragment, withRestart } from './sdp'

/** One peer connection of this page and its resource on the server (RFC 9725, draft-ietf-wish-whep-04). */
export interface Transport {
  pc: RTCPeerConnection
  /** Path of the resource, for PATCH and DELETE. */
  location: string
  /** `TP_…` */
  id: string
  /** `PA_…`, where the server tells it. */
  session: string | null
  /** The answer as the server wrote it. */
  answer: string
  /** The description that was applied last: the answer as adapted, with the credentials of the last restart. */
  remote: string
  /** Tag of the ICE session, for `If-Match`. */
  etag: string | null
  /** Candidates of ours that the server was not told yet. */
  late: string[]
}

const FRAGMENT = 'application/trickle-ice-sdpfrag'

/** The server is reachable by its answer's candidates, so the offer need not wait for many of ours. */
const GATHER_MS = 300
/** The server's own deadline for a join (interfaces §7): an answer that takes longer is of no use. */
const JOIN_MS = 15_000

/**
 * Offers `pc` at `path` and applies the answer, as changed by `adapt`. Candidates found later are sent by PATCH.
 * The connection is closed if it is refused.
 */
export async function connect(
  pc: RTCPeerConnection,
  path: string,
  token: string | null,
  adapt: (answer: string) => string = (answer) => answer,
): Promise<Transport> {
  const late: string[] = []
  let transport: Transport | null = null
  pc.addEventListener('icecandidate', ({ candidate }) => {
    if (candidate?.candidate) late.push(candidate.candidate)
    if (transport && pc.signalingState === 'stable') void trickle(transport, token)
  })
  try {
    await pc.setLocalDescription()
    await gathered(pc, GATHER_MS)
    const told = late.length
    const response = await request(path, {
      method: 'POST',
      headers: { 'content-type': 'application/sdp' },
      body: pc.localDescription?.sdp ?? '',
      token,
      signal: AbortSignal.timeout(JOIN_MS),
    })
    const location = new URL(response.headers.get('location') ?? '', baseOf(path)).pathname
    const answer = await response.text()
    late.splice(0, told)
    const remote = adapt(answer)
    await pc.setRemoteDescription({ type: 'answer', sdp: remote })
    transport = {
      pc,
      location,
      id: location.split('/').at(-1) ?? '',
      session: response.headers.get('rondo-session'),
      answer,
      remote,
      etag: response.headers.get('etag'),
      late,
    }
    void trickle(transport, token)
    return transport
  } catch (error) {
    pc.close()
    throw error
  }
}

/**
 * Restarts ICE on a connection whose path is lost (RFC 9725 §4.3.3): keys, sections and packet numbers go on.
 * Throws `Refused` where the server does not know the connection any more (404), or does not restart (405, 412, 422).
 */
export async function restart(transport: Transport, token: string | null, signal: AbortSignal): Promise<void> {
  const { pc, late } = transport
  late.length = 0
  await pc.setLocalDescription(await pc.createOffer({ iceRestart: true }))
  try {
    await gathered(pc, GATHER_MS)
    const told = late.length
    const body = trickleFragment(pc.localDescription?.sdp ?? '', late, pc.iceGatheringState === 'complete') ?? ''
    const response = await request(transport.location, {
      method: 'PATCH',
      headers: { 'content-type': FRAGMENT, 'if-match': '*' },
      body,
      token,
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]),
    })
    const remote = withRestart(transport.remote, await response.text())
    if (remote === null) throw new Refused({ ...notRestarted, status: response.status })
    await pc.setRemoteDescription({ type: 'answer', sdp: remote })
    late.splice(0, told)
    transport.remote = remote
    transport.etag = response.headers.get('etag')
    void trickle(transport, token)
  } catch (error) {
    if (pc.signalingState === 'have-local-offer') await pc.setLocalDescription({ type: 'rollback' })
    throw error
  }
}

/** How long an answer to a restart is waited for: on a dead network none comes. */
const ANSWER_MS = 5000
const notRestarted = { code: 'no_restart', detail: 'the answer has no ICE credentials', retryAfterS: null, trace: null }

/** How long an answer to DELETE is waited for before the connection is closed all the same. */
const GOODBYE_MS = 1000

/** Tells the server's resource to go, then closes the connection. Works while the page is going away. */
export function disconnect(transport: Transport, token: string | null): void {
  // Closing first would end the resource by DTLS, and the DELETE would find nothing.
  const gone = request(transport.location, { method: 'DELETE', keepalive: true, token })
  const late = new Promise((resolve) => setTimeout(resolve, GOODBYE_MS))
  void Promise.race([gone, late])
    .catch(() => {
      // The server notices by itself: by DTLS, or within its own deadline.
    })
    .finally(() => transport.pc.close())
}

/** Waits until a connection is up; throws after `ms`, or when it cannot come up. */
export function connected(pc: RTCPeerConnection, ms: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (settle: () => void) => {
      clearTimeout(timer)
      pc.removeEventListener('connectionstatechange', look)
      settle()
    }
    const look = () => {
      if (pc.connectionState === 'connected') end(resolve)
      else if (['failed', 'closed'].includes(pc.connectionState)) end(() => reject(new Error(`connection ${pc.connectionState}`)))
    }
    const timer = setTimeout(() => end(() => reject(new Error(`not connected within ${ms} ms`))), ms)
    pc.addEventListener('connectionstatechange', look)
    look()
  })
}

/** A `Location` may be relative to the resource that was asked (RFC 9110 §10.2.2). */
function baseOf(path: string): URL {
  return new URL(path, location.href)
}

function gathered(pc: RTCPeerConnection, ms: number): Promise<void> {
  if (pc.iceGatheringState === 'complete') return Promise.resolve()
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    pc.addEventListener('icegatheringstatechange', () => {
      if (pc.iceGatheringState !== 'complete') return
      clearTimeout(timer)
      resolve()
    })
  })
}

async function trickle(transport: Transport, token: string | null): Promise<void> {
  const { pc, location, etag, late } = transport
  const body = trickleFragment(pc.localDescription?.sdp ?? '', late, pc.iceGatheringState === 'complete')
  if (!body || late.length === 0) return
  late.length = 0
  await request(location, {
    method: 'PATCH',
    headers: { 'content-type': FRAGMENT, ...(etag ? { 'if-match': etag } : {}) },
    body,
    token,
  }).catch(() => {
    // Not every server takes trickle, and the answer's candidates are enough for most paths.
  })
}
