import { connect, type Transport } from '../net/transport'
import { sectionsOf, withPairs } from '../net/sdp'
import { encodingsFor, sideOf, wholeIfAlone } from './layers'
import type { Filled } from './room'

const SCREEN_BPS_MAX = 2_500_000

/** Our published medium. */
export interface Publication {
  transport: Transport
  /** Absent where a screen came without sound. */
  audio: RTCRtpSender | null
  video: RTCRtpSender
}

/** Where something is published or played. */
export interface Stay {
  room: string
  identity: string
  token: string
}

/**
 * Publishes microphone and camera over WHIP, the camera in layers (RFC 8853), of which the server gives each viewer one.
 * Both sections are offered even while a device is missing or off, because a WHIP session is not renegotiated: a device
 * that comes later only takes its sender.
 */
export async function publish(stay: Stay, mic: MediaStreamTrack | null, cam: MediaStreamTrack | null): Promise<Publication> {
  return send(stay, 'camera', mic ?? 'audio', cam ?? 'video', encodingsFor(sideOf(cam)))
}

/**
 * Publishes a screen beside the camera: a second connection of the same session. One layer: letters in small are of no
 * use.
 */
export async function publishScreen(stay: Stay, screen: MediaStreamTrack, sound: MediaStreamTrack | null): Promise<Publication> {
  const publication = await send(stay, 'screen', sound, screen, [{ maxBitrate: SCREEN_BPS_MAX }])
  const parameters = publication.video.getParameters() as RTCRtpSendParameters & { degradationPreference?: string }
  // Letters that are late can be read; letters that are blurred cannot.
  parameters.degradationPreference = 'maintain-resolution'
  await publication.video.setParameters(parameters).catch(() => undefined)
  return publication
}

async function send(
  { room, identity, token }: Stay,
  source: 'camera' | 'screen',
  audioFrom: MediaStreamTrack | 'audio' | null,
  videoFrom: MediaStreamTrack | 'video',
  sendEncodings: RTCRtpEncodingParameters[],
): Promise<Publication> {
  const pc = new RTCPeerConnection({ bundlePolicy: 'max-bundle' })
  const streams = [new MediaStream()]
  const audio = audioFrom && pc.addTransceiver(audioFrom, { direction: 'sendonly', streams })
  const video = pc.addTransceiver(videoFrom, { direction: 'sendonly', streams, sendEncodings })
  const query = source === 'screen' ? '?source=screen' : ''
  const path = `/whip/${encodeURIComponent(room)}/${encodeURIComponent(identity)}${query}`
  const transport = await connect(pc, path, token)
  const whole = wholeIfAlone(video.sender.getParameters(), sendEncodings)
  if (whole) await video.sender.setParameters(whole).catch(() => undefined)
  return { transport, audio: audio?.sender ?? null, video: video.sender }
}

/** How many sections of each kind a page asks for. */
export interface Sections {
  audio: number
  video: number
}

/** Eight others: most calls, in a small offer. */
export const FEW: Sections = { audio: 8, video: 8 }
/** A full page of 25 and a screen, and sound from more than are seen. Stays below the server's 128 KiB for an offer. */
export const MANY: Sections = { audio: 32, video: 26 }

/** What a page asks for when so many others are in. */
export function sectionsFor(others: number): Sections {
  return others > FEW.audio ? MANY : FEW
}

/** Everything of a room on one connection (interfaces §5). */
export class Playback {
  /** mid → what its section carries. */
  readonly tracks: ReadonlyMap<string, MediaStreamTrack>

  private constructor(
    readonly transport: Transport,
    readonly asked: Sections,
  ) {
    this.tracks = new Map(
      transport.pc.getTransceivers().flatMap(({ mid, receiver }) => (mid === null ? [] : [[mid, receiver.track]])),
    )
  }

  static async open({ room, token }: Stay, asked: Sections): Promise<Playback> {
    const pc = new RTCPeerConnection({ bundlePolicy: 'max-bundle' })
    for (const kind of ['audio', 'video'] as const) {
      const codecs = codecsOf(kind)
      for (let n = 0; n < asked[kind]; n++) {
        const transceiver = pc.addTransceiver(kind, { direction: 'recvonly' })
        if (codecs.length > 0) transceiver.setCodecPreferences?.(codecs)
      }
    }
    return new Playback(await connect(pc, `/whep/${encodeURIComponent(room)}`, token, withPairs), asked)
  }

  /** Sections that the answer itself names: mid → track and owner. */
  firstSections(): Map<string, Filled> {
    return new Map(
      sectionsOf(this.transport.answer).flatMap(({ mid, msid }) =>
        msid ? [[mid, { track: msid.track, identity: msid.stream }]] : [],
      ),
    )
  }
}

/** What can be played, without the variants that nobody sends: each costs a few lines in each of up to 58 sections. */
function codecsOf(kind: 'audio' | 'video'): RTCRtpCodec[] {
  const codecs = globalThis.RTCRtpReceiver?.getCapabilities?.(kind)?.codecs ?? []
  if (kind === 'audio') return codecs.filter(({ mimeType }) => /opus/i.test(mimeType))
  return codecs.filter(
    ({ mimeType, sdpFmtpLine = '' }) =>
      /\/(vp8|h264|vp9|av1|rtx)$/i.test(mimeType) &&
      !/packetization-mode=0|profile-id=[123]|(^|;)profile=[12]/.test(sdpFmtpLine) &&
      (!/h264/i.test(mimeType) || /packetization-mode=1/.test(sdpFmtpLine)),
  )
}
