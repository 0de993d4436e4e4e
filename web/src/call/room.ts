import type { ParticipantInfo, RoomEvent, SectionAssignment, TrackInfo } from '../net/events'
import { reseat } from './places'

/** A section that carries somebody's track. */
export interface Filled {
  track: string
  identity: string
}

/** The room as the event stream tells it. Plain data: each event gives a new one. */
export interface Room {
  /** Identity → participant, in order of arrival. */
  participants: ReadonlyMap<string, ParticipantInfo>
  /** mid of our play transport → track and owner; free sections are absent. */
  sections: ReadonlyMap<string, Filled>
  /** Others, as they sit. */
  places: readonly string[]
  /** Identities that speak, loudest first. */
  speakers: readonly string[]
  /** Tracks that found no section. */
  missing: number
  /** Tracks that this browser cannot decode. */
  undecodable: ReadonlySet<string>
  /** A snapshot has come. */
  known: boolean
}

export const emptyRoom: Room = {
  participants: new Map(),
  sections: new Map(),
  places: [],
  speakers: [],
  missing: 0,
  undecodable: new Set(),
  known: false,
}

/** Who reads the stream: events of other transports are not ours, and our own tile has no place among the others. */
export interface Me {
  identity: string
  transport: string
}

/** The room after an event. Events that change nothing here give the same object. */
export function reduce(room: Room, event: RoomEvent, me: Me): Room {
  switch (event.event) {
    case 'snapshot': {
      const participants = new Map(event.room.participants.map((p) => [p.identity, p]))
      const ours = event.sections.filter((section) => section.transport === me.transport)
      // A stream without our session in it says nothing of sections: then the answer's own stand.
      const sections = ours.length > 0 ? ours.reduce(assign, new Map<string, Filled>()) : room.sections
      const next = { ...room, participants, sections, speakers: event.speakers, known: true }
      return seated(next, me)
    }
    case 'room_started':
    case 'room_finished':
    case 'message_to_you':
      return room
    case 'participant_joined':
    case 'participant_updated': {
      const participants = new Map(room.participants).set(event.participant.identity, event.participant)
      return seated({ ...room, participants }, me)
    }
    case 'participant_left': {
      // A newer stay of the same identity is not ended by the news that an older one is over.
      if (room.participants.get(event.identity)?.session !== event.session) return room
      const participants = new Map(room.participants)
      participants.delete(event.identity)
      const speakers = room.speakers.filter((identity) => identity !== event.identity)
      return seated({ ...room, participants, speakers }, me)
    }
    case 'track_published':
    case 'track_muted':
    case 'track_unmuted':
      return withTracks(room, event.identity, (tracks) =>
        tracks.some((track) => track.id === event.track.id)
          ? tracks.map((track) => (track.id === event.track.id ? event.track : track))
          : [...tracks, event.track],
      )
    case 'track_unpublished':
      return withTracks(room, event.identity, (tracks) => tracks.filter((track) => track.id !== event.track.id))
    case 'speakers':
      return { ...room, speakers: event.identities }
    case 'section_assigned':
      return event.transport === me.transport ? { ...room, sections: assign(new Map(room.sections), event) } : room
    case 'sections_full':
      return event.transport === me.transport ? { ...room, missing: event.missing } : room
    case 'codec_unsupported':
      return event.transport === me.transport
        ? { ...room, undecodable: new Set(room.undecodable).add(event.track) }
        : room
    case 'stream_state': {
      const participant = room.participants.get(event.identity)
      if (!participant || participant.session !== event.session) return room
      const participants = new Map(room.participants).set(event.identity, { ...participant, state: event.state })
      return { ...room, participants }
    }
  }
}

function assign(sections: Map<string, Filled>, { mid, track, identity }: SectionAssignment): Map<string, Filled> {
  if (track && identity) sections.set(mid, { track, identity })
  else sections.delete(mid)
  return sections
}

function seated(room: Room, me: Me): Room {
  const others = [...room.participants.values()].filter((p) => p.identity !== me.identity && isShown(p))
  return { ...room, places: reseat(room.places, others.map((p) => p.identity)) }
}

/** Viewers that only watch have no tile. */
function isShown(participant: ParticipantInfo): boolean {
  return participant.tracks.length > 0 || !participant.identity.startsWith('guest-')
}

function withTracks(room: Room, identity: string, change: (tracks: TrackInfo[]) => TrackInfo[]): Room {
  const participant = room.participants.get(identity)
  if (!participant) return room
  return { ...room, participants: new Map(room.participants).set(identity, { ...participant, tracks: change(participant.tracks) }) }
}

/** What of a participant reaches this page: its track of a source, and the section that carries it. */
export function sectionOf(room: Room, identity: string, source: TrackInfo['source']): { mid: string | null; track: TrackInfo | null } {
  const track = room.participants.get(identity)?.tracks.find((t) => t.source === source) ?? null
  if (!track) return { mid: null, track }
  for (const [mid, section] of room.sections) if (section.track === track.id) return { mid, track }
  return { mid: null, track }
}

/** Ids of the tracks that a participant publishes, by source. */
export function trackIds(room: Room, identity: string): Map<TrackInfo['source'], string> {
  return new Map((room.participants.get(identity)?.tracks ?? []).map((track) => [track.source, track.id]))
}
