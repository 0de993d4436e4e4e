import { request } from './api'
import { trickleFragment } from './sdp'

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
}

/** The server is reachable by its answer's candidates, so the offer need not wait for many of ours. */
const GATHER_MS = 300

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
  try {
    const late: string[] = []
    let flush: (() => void) | null = null
    pc.addEventListener('icecandidate', ({ candidate }) => {
      if (candidate?.candidate) late.push(candidate.candidate)
      flush?.()
    })
    await pc.setLocalDescription()
    await gathered(pc, GATHER_MS)
    const told = late.length
    const response = await request(path, {
      method: 'POST',
      headers: { 'content-type': 'application/sdp' },
      body: pc.localDescription?.sdp ?? '',
      token,
    })
    const location = new URL(response.headers.get('location') ?? '', baseOf(path)).pathname
    const etag = response.headers.get('etag')
    const answer = await response.text()
    late.splice(0, told)
    flush = () => void trickle(pc, location, etag, late.splice(0), token)
    if (late.length > 0) flush()
    await pc.setRemoteDescription({ type: 'answer', sdp: adapt(answer) })
    return {
      pc,
      location,
      id: location.split('/').at(-1) ?? '',
      session: response.headers.get('rondo-session'),
      answer,
    }
  } catch (error) {
    pc.close()
    throw error
  }
}

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

async function trickle(
  pc: RTCPeerConnection,
  path: string,
  etag: string | null,
  candidates: string[],
  token: string | null,
): Promise<void> {
  const body = trickleFragment(
    pc.localDescription?.sdp ?? '',
    candidates,
    pc.iceGatheringState === 'complete',
  )
  if (!body || candidates.length === 0) return
  await request(path, {
    method: 'PATCH',
    headers: {
      'content-type': 'application/trickle-ice-sdpfrag',
      ...(etag ? { 'if-match': etag } : {}),
    },
    body,
    token,
  }).catch(() => {
    // Not every server takes trickle, and the answer's candidates are enough for most paths.
  })
}
