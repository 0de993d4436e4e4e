import { connect, type Transport } from '../net/transport'
import { sectionsOf, withPairs } from '../net/sdp'

/** Others on one page: eight of each kind, with one's own tile nine. */
export const OTHERS_MAX = 8
const VIDEO_BPS_MAX = 1_200_000

/** Our published medium. */
export interface Publication {
  transport: Transport
  audio: RTCRtpSender
  video: RTCRtpSender
}

/**
 * Publishes microphone and camera over WHIP. Both sections are offered even while a device is missing or off, because a
 * WHIP session is not renegotiated: a device that comes later only takes its sender.
 */
export async function publish(
  room: string,
  identity: string,
  token: string | null,
  mic: MediaStreamTrack | null,
  cam: MediaStreamTrack | null,
): Promise<Publication> {
  const pc = new RTCPeerConnection({ bundlePolicy: 'max-bundle' })
  const streams = [new MediaStream()]
  const audio = pc.addTransceiver(mic ?? 'audio', { direction: 'sendonly', streams })
  const video = pc.addTransceiver(cam ?? 'video', {
    direction: 'sendonly',
    streams,
    sendEncodings: [{ maxBitrate: VIDEO_BPS_MAX }],
  })
  const path = `/whip/${encodeURIComponent(room)}/${encodeURIComponent(identity)}`
  return { transport: await connect(pc, path, token), audio: audio.sender, video: video.sender }
}

/** Everything of a room on one connection (interfaces §5). */
export class Playback {
  /** mid → what its section carries. */
  readonly tracks: ReadonlyMap<string, MediaStreamTrack>

  private constructor(readonly transport: Transport) {
    this.tracks = new Map(
      transport.pc.getTransceivers().flatMap(({ mid, receiver }) => (mid === null ? [] : [[mid, receiver.track]])),
    )
  }

  static async open(room: string, token: string | null): Promise<Playback> {
    const pc = new RTCPeerConnection({ bundlePolicy: 'max-bundle' })
    for (const kind of ['audio', 'video']) {
      for (let n = 0; n < OTHERS_MAX; n++) pc.addTransceiver(kind, { direction: 'recvonly' })
    }
    return new Playback(await connect(pc, `/whep/${encodeURIComponent(room)}`, token, withPairs))
  }

  /** Sections that the answer itself names: mid → track and owner. */
  firstSections(): Map<string, { track: string; identity: string }> {
    return new Map(
      sectionsOf(this.transport.answer).flatMap(({ mid, msid }) =>
        msid ? [[mid, { track: msid.track, identity: msid.stream }]] : [],
      ),
    )
  }
}
