/** The room's event stream, as `actors/src/api/events.rs` (`RoomEvent`) puts it on the wire. */

export type Source = 'camera' | 'microphone' | 'screen' | 'screen_audio' | 'voice'
export type LeaveReason =
  | 'client_left'
  | 'replaced'
  | 'join_timeout'
  | 'connection_lost'
  | 'dtls_failed'
  | 'removed'
  | 'room_closed'
  | 'server_shutdown'
  | 'server_error'
export type SessionState = 'joining' | 'connected' | 'disconnected' | 'left'

export interface TrackInfo {
  id: string
  source: Source
  kind: 'audio' | 'video'
  codec: string | null
  muted: boolean
}

export interface ParticipantInfo {
  identity: string
  name: string
  session: string
  metadata: string
  joined_at_ms: number
  state: SessionState
  quality?: Verdicts
  tracks: TrackInfo[]
}

export interface RoomInfo {
  id: string
  name: string
  kind: 'call' | 'conference' | 'live' | 'voice'
  worker: number
  created_at_ms: number
  max_participants: number
  metadata: string
  participants: ParticipantInfo[]
}

export interface SectionAssignment {
  transport: string
  mid: string
  track: string | null
  identity: string | null
}

/** Whether anybody wants a layer of a track; without a name it is all of the track. */
export interface LayerWanted {
  rid: string | null
  wanted: boolean
}

/** The server's quality rule (`media/src/quality.rs`) of one direction, and why it is not better. */
export interface Verdict {
  quality: 'good' | 'fair' | 'poor' | 'no_data'
  cause: 'layer' | 'delay' | 'loss' | 'silence' | null
}

/** Of what a participant sends, and of what it gets; absent where it does not. */
export interface Verdicts {
  up?: Verdict | null
  down?: Verdict | null
}

export type RoomEvent =
  | {
      event: 'snapshot'
      room: RoomInfo
      sections: SectionAssignment[]
      you: string | null
      speakers: string[]
    }
  | { event: 'room_started'; room: RoomInfo }
  | { event: 'room_finished'; reason: LeaveReason; by: string | null }
  | { event: 'participant_joined' | 'participant_updated'; participant: ParticipantInfo }
  | { event: 'participant_left'; identity: string; session: string; reason: LeaveReason }
  /** Published again: the same track goes on in another codec. */
  | { event: 'track_published' | 'track_muted' | 'track_unmuted'; identity: string; track: TrackInfo }
  | { event: 'track_unpublished'; identity: string; track: TrackInfo; reason: LeaveReason }
  | { event: 'speakers'; identities: string[] }
  | ({ event: 'section_assigned' } & SectionAssignment)
  /** Tracks, not people; sent at each change, 0 included. */
  | { event: 'sections_full'; transport: string; missing: number }
  | { event: 'codec_unsupported'; transport: string; track: string; codec: string | null }
  /** To the publisher: all layers of a track each time. A track of which nothing is said is wanted as a whole. */
  | { event: 'layers_wanted'; track: string; layers: LayerWanted[] }
  | ({ event: 'quality'; identity: string } & Verdicts)
  | { event: 'stream_state'; identity: string; session: string; state: SessionState }
  | {
      event: 'message_to_you'
      what: 'muted' | 'unmuted' | 'removed' | 'moving' | 'replaced' | 'join_again'
      by: string | null
      track: string | null
    }

const NAMES: readonly RoomEvent['event'][] = [
  'snapshot',
  'room_started',
  'room_finished',
  'participant_joined',
  'participant_updated',
  'participant_left',
  'track_published',
  'track_unpublished',
  'track_muted',
  'track_unmuted',
  'speakers',
  'section_assigned',
  'sections_full',
  'codec_unsupported',
  'layers_wanted',
  'quality',
  'stream_state',
  'message_to_you',
]

/** What the reader of a stream hears. */
export interface EventSink {
  event(event: RoomEvent): void
  /** The stream works (again), or does not. The browser itself reconnects and resumes by `Last-Event-ID`. */
  live(live: boolean): void
  /** The server refused the stream; it will not come back by itself. */
  refused(): void
}

/** Opens the event stream of a room. Returns what closes it. */
export function openEvents(room: string, session: string | null, token: string | null, sink: EventSink): () => void {
  const query = new URLSearchParams()
  if (token) query.set('access_token', token)
  if (session) query.set('session', session)
  const source = new EventSource(`/api/v1/rooms/${encodeURIComponent(room)}/events?${query}`)
  source.addEventListener('open', () => sink.live(true))
  source.addEventListener('error', () => {
    sink.live(false)
    if (source.readyState === EventSource.CLOSED) sink.refused()
  })
  for (const name of NAMES) {
    source.addEventListener(name, (message: MessageEvent<string>) => {
      sink.event({ ...(JSON.parse(message.data) as object), event: name } as RoomEvent)
    })
  }
  return () => source.close()
}
