import { words, type Said } from '../words'

/** A refusal as the server tells it: `application/problem+json` (RFC 9457) with a stable `code`. */
export interface Problem {
  status: number
  code: string
  detail: string
  /** Seconds of `Retry-After`, where given. */
  retryAfterS: number | null
  /** Trace id of the answer, where given. */
  trace: string | null
}

/** A request that was refused, or (status 0) did not reach the server. */
export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(`${problem.status} ${problem.code}: ${problem.detail}`)
  }
}

export const unreachable: Problem = { status: 0, code: 'unreachable', detail: '', retryAfterS: null, trace: null }

/** Reads a refusal. A body that is no problem document still gives a problem, by its status. */
export async function readProblem(response: Response): Promise<Problem> {
  const body: unknown = await response.json().catch(() => null)
  const field = (name: string): string | null => {
    const value: unknown = typeof body === 'object' && body !== null ? (body as Record<string, unknown>)[name] : null
    return typeof value === 'string' && value !== '' ? value : null
  }
  const retry = Number.parseInt(response.headers.get('retry-after') ?? '', 10)
  return {
    status: response.status,
    code: field('code') ?? `http_${response.status}`,
    detail: field('detail') ?? '',
    retryAfterS: Number.isFinite(retry) && retry >= 0 ? retry : null,
    trace: field('trace_id') ?? traceOf(response.headers.get('traceresponse')),
  }
}

/** Trace id of a W3C `traceresponse` value: `00-{32 hex}-{16 hex}-{2 hex}`. */
export function traceOf(header: string | null): string | null {
  return /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(header ?? '')?.[1] ?? null
}

/** Seconds until the `attempt`-th automatic try (from 0): 20, 40, 60, 60 … and never before `Retry-After`; ± 10 %. */
export function retryInS(attempt: number, retryAfterS: number | null, random: number): number {
  const base = Math.max(Math.min(20 * (attempt + 1), 60), retryAfterS ?? 0)
  return Math.max(1, Math.round(base * (0.9 + 0.2 * random)))
}

/** Whether the page tries again by itself after this refusal. */
export function triesAgain(problem: Problem): boolean {
  if (problem.code === 'room_full' || problem.code === 'too_many_transports') return false
  return problem.status === 429 || ['server_full', 'too_many_rooms', 'busy'].includes(problem.code)
}

/** What a refusal says to the person it stops. `waitS`: seconds to the next automatic try. */
export function sayProblem(problem: Problem, room: string, waitS = problem.retryAfterS ?? 20): Said {
  const said = (text: string, ...buttons: Said['actions']): Said => ({
    text,
    actions: buttons,
    code: problem.code,
    ...(problem.trace ? { trace: problem.trace } : {}),
  })
  if (problem.status === 0) return said(words.refused.unreachable, 'tryAgain')
  switch (problem.code) {
    case 'room_full':
      return said(words.refused.roomFull(/\d+ of \d+/.exec(problem.detail)?.[0] ?? null), 'tryAgain')
    case 'server_full':
    case 'too_many_rooms':
      return said(words.refused.serverFull(waitS), 'tryNow')
    case 'draining':
    case 'server_shutdown':
      return said(words.refused.draining, 'tryAgain')
    case 'token_expired':
      return said(words.refused.expired)
    case 'bad_name':
      return said(words.lobby.badRoom)
    case 'no_common_codec':
      return said(words.refused.cannotCall)
    case 'replaced':
      return said(words.byOthers.elsewhere, 'useThisTab')
    case 'removed':
      return said(words.byOthers.removed(null), 'startPage')
    case 'room_closed':
      return said(words.byOthers.closed(null, clock(new Date())), 'startPage')
    case 'client_left':
      return said(words.call.left(room), 'joinAgain', 'startPage')
  }
  if (problem.status === 401 || problem.status === 403) return said(words.refused.wrong(room))
  if (triesAgain(problem)) return said(words.refused.serverBusy(waitS), 'tryNow')
  return said(words.refused.other(problem.status, problem.code), 'tryAgain')
}

/** Hours and minutes of the reader's own clock: `14:32`. */
export function clock(at: Date): string {
  return `${String(at.getHours()).padStart(2, '0')}:${String(at.getMinutes()).padStart(2, '0')}`
}
