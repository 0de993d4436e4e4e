import type { TrackInfo } from '../net/events'
import { words } from '../words'
import { weakness, type Weakness } from './quality'
import { midsOf } from './room'
import type { Session } from './session.svelte'

/** What one tile shows. */
export interface TileView {
  /** Names the tile: the identity, or the identity and that it is a screen. */
  key: string
  identity: string
  /** As it is shown; "You" for one's own. */
  name: string
  fullName: string
  own: boolean
  /** A shared screen: shown whole, and by preference. */
  screen: boolean
  video: MediaStreamTrack | null
  /** The track to ask for, though it be muted now; nothing for one's own and for those that send none. */
  track: string | null
  muted: boolean
  away: boolean
  speaks: boolean
  pinned: boolean
  /** How its connection is, where that is not good. */
  weak: Weakness | null
}

/** The tiles of a call: others as they sit, their screens in the order they began, and one's own. */
export function tilesOf(session: Session, pinned: string | null): TileView[] {
  const { room, lit } = session
  const mids = midsOf(room)
  const people: TileView[] = []
  const screens: TileView[] = []
  for (const identity of room.places) {
    const participant = room.participants.get(identity)
    if (!participant) continue
    const name = participant.name || identity
    const bySource = new Map(participant.tracks.map((track) => [track.source, track]))
    const microphone = bySource.get('microphone')
    const common = { identity, fullName: name, own: false, away: participant.state === 'disconnected' }
    people.push({
      ...common,
      key: identity,
      name,
      screen: false,
      ...picture(session, mids, bySource.get('camera')),
      muted: microphone === undefined || microphone.muted,
      speaks: lit.has(identity),
      pinned: pinned === identity,
      weak: common.away ? null : weakness(room.quality.get(identity), name),
    })
    const shared = bySource.get('screen')
    if (!shared || shared.muted) continue
    const key = `${identity}/screen`
    const calm = { muted: false, speaks: false, pinned: pinned === key, weak: null }
    screens.push({ ...common, key, name: words.share.theirs(name), screen: true, ...picture(session, mids, shared), ...calm })
  }
  const age = (tile: TileView) => room.shares.indexOf(tile.identity)
  return [...people, ...screens.sort((a, b) => age(a) - age(b)), ...ownTiles(session, pinned)]
}

function ownTiles(session: Session, pinned: string | null): TileView[] {
  if (!session.wanted.publishes) return []
  const { identity } = session.me
  const key = `${identity}/screen`
  const common = { identity, own: true, track: null, away: false, fullName: session.wanted.name || words.call.you }
  const camera: TileView = {
    ...common,
    key: identity,
    name: words.call.you,
    screen: false,
    video: session.camOn ? session.devices.camTrack : null,
    muted: !session.micOn,
    speaks: session.micOn && session.lit.has(identity),
    pinned: pinned === identity,
    // While the link is gone, that is said in its own place.
    weak: session.link.state === 'connected' ? weakness(session.room.quality.get(identity), null) : null,
  }
  if (session.screen.state !== 'on') return [camera]
  const screen = { screen: true, video: session.screen.track, muted: false, speaks: false, pinned: pinned === key, weak: null }
  return [{ ...common, key, name: words.share.yours, ...screen }, camera]
}

function picture(
  { room, play }: Session,
  mids: ReadonlyMap<string, string>,
  track: TrackInfo | undefined,
): Pick<TileView, 'video' | 'track'> {
  if (!track) return { video: null, track: null }
  const mid = track.muted || room.undecodable.has(track.id) ? undefined : mids.get(track.id)
  return { video: mid === undefined ? null : (play.tracks.get(mid) ?? null), track: track.id }
}

/** A tile's name for a screen reader: "Bob, muted, weak connection". Who speaks is left out: it would never be still. */
export function tileLabel(tile: TileView): string {
  return [
    tile.name,
    tile.muted ? words.tile.muted : '',
    tile.away ? words.tile.away : '',
    tile.weak?.short ?? '',
    tile.pinned ? words.tile.pinned : '',
  ]
    .filter(Boolean)
    .join(', ')
}

/** mids of the audio sections that carry somebody. */
export function audioMids(session: Session): string[] {
  return [...session.room.sections.keys()].filter((mid) => session.play.tracks.get(mid)?.kind === 'audio')
}
