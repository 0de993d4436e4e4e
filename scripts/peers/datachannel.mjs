// libdatachannel (which OBS uses) as a publisher and a player, by node-datachannel.
import rtc from 'node-datachannel'
import { enter } from './door.mjs'
import { AUDIO, VIDEO } from './source.mjs'
import { header, Stream } from './stream.mjs'

function connection(name) {
  const pc = new rtc.PeerConnection(name, { iceServers: [], disableAutoNegotiation: true })
  const state = { pc, connected: null, failed: null }
  state.connected = new Promise((resolve, reject) => {
    pc.onStateChange((now) => {
      if (now === 'connected') resolve()
      if (now === 'failed') reject(new Error(`${name}: libdatachannel says failed`))
    })
  })
  return state
}

async function negotiate(pc, url) {
  const gathered = new Promise((resolve) => pc.onGatheringStateChange((state) => state === 'complete' && resolve()))
  pc.setLocalDescription('offer')
  await gathered
  const { answer, leave } = await enter(url, pc.localDescription().sdp)
  pc.setRemoteDescription(answer, 'answer')
  return leave
}

/** Publishes what `send(kind, bytes)` is given. */
export async function publish(url) {
  const { pc, connected } = connection('publisher')
  const video = new rtc.Video('0', 'SendOnly')
  video.addH264Codec(VIDEO.pt, VIDEO.fmtp)
  video.addSSRC(VIDEO.ssrc, 'pushed', 'pushed', 'pushed-video')
  const audio = new rtc.Audio('1', 'SendOnly')
  audio.addOpusCodec(AUDIO.pt)
  audio.addSSRC(AUDIO.ssrc, 'pushed', 'pushed', 'pushed-audio')
  const tracks = { video: pc.addTrack(video), audio: pc.addTrack(audio) }
  const leave = await negotiate(pc, url)
  await connected
  const send = (kind, bytes) => tracks[kind].isOpen() && tracks[kind].sendMessageBinary(bytes)
  const close = async () => {
    await leave()
    pc.close()
  }
  return { send, close }
}

/** Plays one picture and one sound. */
export async function play(url) {
  const { pc, connected } = connection('player')
  const streams = { video: new Stream(), audio: new Stream() }
  const video = new rtc.Video('0', 'RecvOnly')
  video.addH264Codec(VIDEO.pt, VIDEO.fmtp)
  const audio = new rtc.Audio('1', 'RecvOnly')
  audio.addOpusCodec(AUDIO.pt)
  const tracks = []
  for (const [kind, media] of Object.entries({ video, audio })) {
    const track = pc.addTrack(media)
    track.setMediaHandler(new rtc.RtcpReceivingSession())
    track.onMessage((bytes) => {
      const rtp = header(bytes)
      if (rtp) streams[kind].take(rtp)
    })
    // A track that nobody holds is collected, and its messages with it.
    tracks.push(track)
  }
  const leave = await negotiate(pc, url)
  await connected
  const close = async () => {
    await leave()
    pc.close()
    tracks.length = 0
  }
  return { streams, close }
}

/** libdatachannel's threads keep the process alive otherwise. */
export const end = () => rtc.cleanup()
