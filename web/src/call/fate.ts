import type { LeaveReason } from '../net/events'
import type { Problem } from '../net/problem'

/**
 * What becomes of a stay whose event stream was refused. `over`: it has ended, and there is a sentence for it. `lost` and
 * `neverOpened`: the link is gone, or never was; its person may try again. `goesOn`: nothing says that it has ended.
 */
export type Fate = 'over' | 'lost' | 'neverOpened' | 'goesOn'

const BY_REASON: Record<LeaveReason, Fate> = {
  client_left: 'over',
  replaced: 'over',
  removed: 'over',
  room_closed: 'over',
  server_shutdown: 'over',
  join_timeout: 'neverOpened',
  connection_lost: 'lost',
  dtls_failed: 'lost',
  server_error: 'lost',
}

/** Reads the refusal of `GET /api/v1/sessions/{PA}`: 404 with the reason of the end as its code, for as long as it is known. */
export function fateOf({ status, code }: Problem): Fate {
  if (['token_expired', 'unauthorized', 'forbidden'].includes(code)) return 'over'
  if (status !== 404) return 'goesOn'
  // `moved`, `session_not_found` and what a newer server may say: this stay is not there any more.
  return Object.hasOwn(BY_REASON, code) ? BY_REASON[code as LeaveReason] : 'lost'
}
