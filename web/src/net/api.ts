import { readProblem, Refused, unreachable, type Problem } from './problem'
import type { RoomInfo } from './events'

/** Sends a request to this origin. Throws `Refused` for anything but 2xx. */
export async function request(path: string, init: RequestInit & { token?: string | null }): Promise<Response> {
  const { token, ...rest } = init
  const headers = new Headers(rest.headers)
  if (token) headers.set('authorization', `Bearer ${token}`)
  const response = await fetch(path, { ...rest, headers, cache: 'no-store' }).catch(() => {
    throw new Refused(unreachable)
  })
  if (!response.ok) throw new Refused(await readProblem(response))
  return response
}

/** What the page joins with. */
export interface Pass {
  token: string
  identity: string
}

/** Asks a server in `--dev` for a token. A server that does not give any is told apart as `unauthorized`. */
export async function devToken(room: string, identity: string, name: string): Promise<Pass> {
  try {
    const response = await request('/api/v1/dev/token', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ room, identity, name }),
    })
    return (await response.json()) as Pass
  } catch (error) {
    if (error instanceof Refused && error.problem.status === 404) {
      const problem: Problem = { ...error.problem, status: 401, code: 'unauthorized' }
      throw new Refused(problem)
    }
    throw error
  }
}

/** How many are in a room; nothing if the server does not tell (a token that may not list, a network fault). */
export async function countPeople(room: string, token: string | null, signal: AbortSignal): Promise<number | null> {
  try {
    const response = await request(`/api/v1/rooms/${encodeURIComponent(room)}`, { token, signal })
    return ((await response.json()) as RoomInfo).participants.length
  } catch (error) {
    return error instanceof Refused && error.problem.status === 404 ? 0 : null
  }
}

/** Tells the server which of the session's own tracks are muted. */
export async function patchMuted(session: string, muted: Record<string, boolean>, token: string | null): Promise<void> {
  await request(`/api/v1/sessions/${session}`, {
    method: 'PATCH',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ muted }),
    token,
  })
}

/**
 * What this page wants of one track: `paused` means that nothing of it is sent; sizes in physical pixels. From priority 2
 * on it is made as good as it gets before others are made better (`Rank::STAGE` in `media/src/congestion`).
 */
export interface Wish {
  track: string
  paused: boolean
  width_px?: number
  height_px?: number
  priority?: number
}

/** Tells the server which tracks are wanted, and how large. */
export async function patchWishes(session: string, wishes: readonly Wish[], token: string | null): Promise<void> {
  await request(`/api/v1/sessions/${session}/subscriptions`, {
    method: 'PATCH',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(wishes),
    token,
  })
}

/** What the server believes that the path of one of a session's connections takes, bit/s; nothing where it does not know. */
export async function estimateOf(session: string, transport: string, token: string | null): Promise<number | null> {
  const response = await request(`/api/v1/sessions/${session}`, { token })
  const { transports = [] } = (await response.json()) as {
    transports?: { id?: string | null; door: string; estimate_bits_per_second?: number | null }[]
  }
  // A guest is not told which connection is which.
  const play = transports.find(({ id }) => id === transport) ?? transports.find(({ id, door }) => !id && door === 'whep')
  return play?.estimate_bits_per_second ?? null
}

/** Why a session is over, if it is. */
export async function whyGone(session: string, token: string | null): Promise<Problem | null> {
  try {
    await request(`/api/v1/sessions/${session}`, { token })
    return null
  } catch (error) {
    return error instanceof Refused ? error.problem : null
  }
}
