// werift, a WebRTC stack in TypeScript, as a publisher and a player.
import { MediaStreamTrack, RTCPeerConnection, RTCRtpCodecParameters, RtpPacket, useSdesMid } from 'werift'
import { enter } from './door.mjs'
import { AUDIO, VIDEO } from './source.mjs'
import { header, Stream } from './stream.mjs'

function connection() {
  const video = new RTCRtpCodecParameters({
    mimeType: 'video/H264',
    clockRate: 90000,
    payloadType: VIDEO.pt,
    parameters: VIDEO.fmtp,
    rtcpFeedback: [{ type: 'nack' }, { type: 'nack', parameter: 'pli' }],
  })
  const audio = new RTCRtpCodecParameters({ mimeType: 'audio/OPUS', clockRate: 48000, channels: 2, payloadType: AUDIO.pt })
  const pc = new RTCPeerConnection({
    iceServers: [],
    codecs: { video: [video], audio: [audio] },
    headerExtensions: { video: [useSdesMid()], audio: [useSdesMid()] },
  })
  const connected = new Promise((resolve, reject) => {
    pc.connectionStateChange.subscribe((state) => {
      if (state === 'connected') resolve()
      if (state === 'failed') reject(new Error('werift says failed'))
    })
  })
  return { pc, connected }
}

async function negotiate(pc, url) {
  await pc.setLocalDescription(await pc.createOffer())
  if (pc.iceGatheringState !== 'complete') {
    await new Promise((resolve) => pc.iceGatheringStateChange.subscribe((state) => state === 'complete' && resolve()))
  }
  const { answer, leave } = await enter(url, pc.localDescription.sdp)
  await pc.setRemoteDescription({ type: 'answer', sdp: answer })
  return leave
}

/** Publishes the RTP that `send(kind, bytes)` is given; RTCP is werift's own. */
export async function publish(url) {
  const { pc, connected } = connection()
  const tracks = { video: new MediaStreamTrack({ kind: 'video' }), audio: new MediaStreamTrack({ kind: 'audio' }) }
  for (const track of Object.values(tracks)) pc.addTransceiver(track, { direction: 'sendonly' })
  const leave = await negotiate(pc, url)
  await connected
  const send = (kind, bytes) => header(bytes) && tracks[kind].writeRtp(RtpPacket.deSerialize(bytes))
  const close = async () => {
    await leave()
    await pc.close()
  }
  return { send, close }
}

/** Plays one picture and one sound. */
export async function play(url) {
  const { pc, connected } = connection()
  const streams = { video: new Stream(), audio: new Stream() }
  for (const kind of ['video', 'audio']) pc.addTransceiver(kind, { direction: 'recvonly' })
  pc.onTrack.subscribe((track) => {
    track.onReceiveRtp.subscribe(({ header: { sequenceNumber, timestamp, marker, payloadType, ssrc } }) => {
      streams[track.kind].take({ seq: sequenceNumber, time: timestamp, marker, pt: payloadType, ssrc })
    })
  })
  const leave = await negotiate(pc, url)
  await connected
  const close = async () => {
    await leave()
    await pc.close()
  }
  return { streams, close }
}

export const end = () => undefined
