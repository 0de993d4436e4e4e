import type { ParticipantInfo, RoomEvent, SectionAssignment, TrackInfo, Verdicts } from '../net/events'
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
  /** Others who share a screen, in the order they began. */
  shares: readonly string[]
  /** Identities that speak, loudest first. */
  speakers: readonly string[]
  /** Tracks that found no section, as the server counts them. */
  missing: number
  /** Tracks that this browser cannot decode → the codec that it cannot. */
  undecodable: ReadonlyMap<string, string | null>
  /** Identity → what the server says of their connection, so far as it does. */
  quality: ReadonlyMap<string, Verdicts>
  /** A snapshot has come. */
  known: boolean
}

export const emptyRoom: Room = {
  participants: new Map(),
  sections: new Map(),
  places: [],
  shares: [],
  speakers: [],
  missing: 0,
  undecodable: new Map(),
  quality: new Map(),
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
      const quality = new Map(event.room.participants.flatMap((p) => (p.quality ? [[p.identity, p.quality] as const] : [])))
      const next = { ...room, participants, sections, speakers: event.speakers, quality, known: true }
      if (event.you === null) return seated(next, me)
      // `sections_full` of the join itself was sent before this stream was open.
      return seated({ ...next, missing: others(next, me).flatMap((p) => sectionless(next, p)).length }, me)
    }
    case 'room_started':
    case 'room_finished':
    case 'layers_wanted':
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
      const quality = new Map(room.quality)
      quality.delete(event.identity)
      return seated({ ...room, participants, speakers, quality }, me)
    }
    case 'track_published':
    case 'track_muted':
    case 'track_unmuted':
      return withTracks(judgedAnew(room, event.track), me, event.identity, (tracks) =>
        tracks.some((track) => track.id === event.track.id)
          ? tracks.map((track) => (track.id === event.track.id ? event.track : track))
          : [...tracks, event.track],
      )
    case 'track_unpublished':
      return withTracks(room, me, event.identity, (tracks) => tracks.filter((track) => track.id !== event.track.id))
    case 'speakers':
      return { ...room, speakers: event.identities }
    case 'section_assigned':
      return event.transport === me.transport ? { ...room, sections: assign(new Map(room.sections), event) } : room
    case 'sections_full':
      return event.transport === me.transport ? { ...room, missing: event.missing } : room
    case 'codec_unsupported':
      return event.transport === me.transport
        ? { ...room, undecodable: new Map(room.undecodable).set(event.track, event.codec) }
        : room
    case 'quality':
      return { ...room, quality: new Map(room.quality).set(event.identity, event) }
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

/** Who sits where and who shares, after people or tracks came or went. */
function seated(room: Room, me: Me): Room {
  const present = others(room, me).filter(isShown)
  return { ...room, places: reseat(room.places, present.map((p) => p.identity)), shares: sharing(room, present) }
}

function sharing(room: Room, present: readonly ParticipantInfo[]): readonly string[] {
  const now = present.filter((p) => p.tracks.some((t) => t.source === 'screen' && !t.muted)).map((p) => p.identity)
  const stay = room.shares.filter((identity) => now.includes(identity))
  return [...stay, ...now.filter((identity) => !stay.includes(identity))]
}

export function isOther({ identity }: ParticipantInfo, me: Me): boolean {
  return identity !== me.identity
}

function others(room: Room, me: Me): ParticipantInfo[] {
  return [...room.participants.values()].filter((p) => isOther(p, me))
}

/** Tracks of a participant that no section carries, though there is something to play, and this browser could. */
function sectionless(room: Room, { tracks }: ParticipantInfo): TrackInfo[] {
  const carried = new Set([...room.sections.values()].map((section) => section.track))
  return tracks.filter((track) => !track.muted && !carried.has(track.id) && !room.undecodable.has(track.id))
}

/** People of whom something that is wanted has no section. */
export interface Missed {
  unheard: number
  unshown: number
}

/**
 * How many people are not heard, and how many are not seen though their tile is `shown` (ids of the pictures that the
 * stage wants). Never more than the server's count of such tracks: a track is told before its section, and is not missing
 * in between.
 */
export function missed(room: Room, me: Me, shown: ReadonlySet<string>): Missed {
  const people = room.missing === 0 ? [] : others(room, me).map((p) => sectionless(room, p))
  const count = (is: (track: TrackInfo) => boolean) =>
    Math.min(room.missing, people.filter((tracks) => tracks.some(is)).length)
  return { unheard: count((track) => track.kind === 'audio'), unshown: count((track) => shown.has(track.id)) }
}

/** A track that goes on in another codec is no longer the one that could not be decoded. */
function judgedAnew(room: Room, track: TrackInfo): Room {
  const codec = room.undecodable.get(track.id) ?? null
  if (codec === null || codec === track.codec) return room
  const undecodable = new Map(room.undecodable)
  undecodable.delete(track.id)
  return { ...room, undecodable }
}

/** Viewers that only watch have no tile. */
function isShown(participant: ParticipantInfo): boolean {
  return participant.tracks.length > 0 || !participant.identity.startsWith('guest-')
}

function withTracks(room: Room, me: Me, identity: string, change: (tracks: TrackInfo[]) => TrackInfo[]): Room {
  const participant = room.participants.get(identity)
  if (!participant) return room
  const participants = new Map(room.participants).set(identity, { ...participant, tracks: change(participant.tracks) })
  return seated({ ...room, participants }, me)
}

/** Track → mid of the section that carries it. */
export function midsOf(room: Room): Map<string, string> {
  return new Map([...room.sections].map(([mid, { track }]) => [track, mid]))
}

/** Ids of the tracks that a participant publishes, by source. */
export function trackIds(room: Room, identity: string): Map<TrackInfo['source'], string> {
  return new Map((room.participants.get(identity)?.tracks ?? []).map((track) => [track.source, track.id]))
}
