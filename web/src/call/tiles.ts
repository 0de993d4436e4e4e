import { words } from '../words'
import type { Session } from './session.svelte'
import { sectionOf } from './room'

/** What one tile shows. */
export interface TileView {
  identity: string
  name: string
  own: boolean
  video: MediaStreamTrack | null
  muted: boolean
  away: boolean
  speaks: boolean
  pinned: boolean
}

/** The tiles of a call, others as they sit and one's own last. */
export function tilesOf(session: Session, pinned: string | null): TileView[] {
  const { room, me, lit, play, devices } = session
  const others = room.places.flatMap((identity): TileView[] => {
    const participant = room.participants.get(identity)
    if (!participant) return []
    const camera = sectionOf(room, identity, 'camera')
    const microphone = sectionOf(room, identity, 'microphone')
    const shown = camera.mid !== null && camera.track !== null && !camera.track.muted && !room.undecodable.has(camera.track.id)
    return [
      {
        identity,
        name: participant.name || identity,
        own: false,
        video: shown && camera.mid !== null ? (play.tracks.get(camera.mid) ?? null) : null,
        muted: microphone.track === null || microphone.track.muted,
        away: participant.state === 'disconnected',
        speaks: lit.has(identity),
        pinned: pinned === identity,
      },
    ]
  })
  if (!session.wanted.publishes) return others
  const own: TileView = {
    identity: me.identity,
    name: words.call.you,
    own: true,
    video: session.camOn ? devices.camTrack : null,
    muted: !session.micOn,
    away: false,
    speaks: session.micOn && lit.has(me.identity),
    pinned: pinned === me.identity,
  }
  return [...others, own]
}

/** A tile's name for a screen reader: "Bob, muted, reconnecting". Who speaks is left out: it would never be still. */
export function tileLabel(tile: TileView): string {
  return [
    tile.name,
    tile.muted ? words.tile.muted : '',
    tile.away ? words.tile.away : '',
    tile.pinned ? words.tile.pinned : '',
  ]
    .filter(Boolean)
    .join(', ')
}

/** mids of the audio sections that carry somebody. */
export function audioMids(session: Session): string[] {
  return [...session.room.sections.keys()].filter((mid) => session.play.tracks.get(mid)?.kind === 'audio')
}
