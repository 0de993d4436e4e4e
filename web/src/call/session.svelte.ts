import { patchMuted, whyGone, type Pass } from '../net/api'
import { openEvents, type RoomEvent, type Source } from '../net/events'
import { clock, sayProblem } from '../net/problem'
import { disconnect, type Transport } from '../net/transport'
import { assertive, polite } from '../ui/announce'
import { words, type Said } from '../words'
import type { Devices, DeviceState } from '../media/devices.svelte'
import { fateOf } from './fate'
import { Health, type Report } from './health'
import { Link } from './link.svelte'
import { Playback, publish, type Publication } from './peer'
import { rate, Steady, type Quality } from './quality'
import { Ring } from './ring'
import { emptyRoom, reduce, trackIds, type Me, type Room } from './room'

export interface Wanted {
  room: string
  name: string
  pass: Pass
  /** False on the watch page, and where the token forbids it. */
  publishes: boolean
  micOn: boolean
  camOn: boolean
}

/** One stay in one room: its connections, the room as it is told, and what the page's own person does. */
export class Session {
  room = $state.raw<Room>(emptyRoom)
  readonly link = new Link()
  /** Why it is over; nothing while it goes on. */
  over = $state.raw<Said | null>(null)
  micOn = $state(false)
  camOn = $state(false)
  /** Who muted us, until we unmute. */
  mutedBy = $state<string | null>(null)
  moving = $state(false)
  controlLost = $state(false)
  lit = $state.raw<ReadonlySet<string>>(new Set())
  report = $state.raw<Report | null>(null)
  upload = $state<Quality>('none')
  download = $state<Quality>('none')
  readonly me: Me
  readonly startedMs = Date.now()

  readonly #ring = new Ring()
  readonly #health = new Health()
  readonly #steady = { up: new Steady(), down: new Steady() }
  /** Own track → muted, as far as the server was told. */
  readonly #toldMuted = new Map<string, boolean>()
  #telling: Promise<void> = Promise.resolve()
  readonly #ends: (() => void)[] = []
  #ringTimer = 0
  #controlTimer = 0

  private constructor(
    readonly wanted: Wanted,
    readonly devices: Devices,
    readonly play: Playback,
    readonly publication: Publication | null,
  ) {
    this.me = { identity: wanted.pass.identity, transport: play.transport.id }
    this.micOn = wanted.micOn && wanted.publishes
    this.camOn = wanted.camOn && wanted.publishes
    this.room = { ...emptyRoom, sections: play.firstSections() }
    this.#follow()
    this.#listen()
    this.link.watch([play.transport.pc, ...(publication ? [publication.transport.pc] : [])])
    const stats = setInterval(() => void this.#measure(), 1000)
    const leaveWithPage = () => this.leave()
    addEventListener('pagehide', leaveWithPage)
    this.#ends.push(
      () => clearInterval(stats),
      () => removeEventListener('pagehide', leaveWithPage),
      () => this.link.end(),
    )
  }

  /** Joins: both connections at once. If one is refused, the other is given back and the refusal is thrown. */
  static async join(wanted: Wanted, devices: Devices): Promise<Session> {
    const { room, pass } = wanted
    const [playing, publishing] = await Promise.allSettled([
      Playback.open(room, pass.token),
      wanted.publishes ? publish(room, pass.identity, pass.token, devices.micTrack, devices.camTrack) : null,
    ])
    if (playing.status === 'fulfilled' && publishing.status === 'fulfilled') {
      return new Session(wanted, devices, playing.value, publishing.value)
    }
    if (playing.status === 'fulfilled') disconnect(playing.value.transport, pass.token)
    if (publishing.status === 'fulfilled' && publishing.value) disconnect(publishing.value.transport, pass.token)
    throw playing.status === 'rejected' ? playing.reason : (publishing as PromiseRejectedResult).reason
  }

  /** `PA_…` */
  get id(): string | null {
    return this.publication?.transport.session ?? this.play.transport.session
  }

  /** The browser's own connection objects. */
  get connections(): { publish: RTCPeerConnection | null; play: RTCPeerConnection } {
    return { publish: this.publication?.transport.pc ?? null, play: this.play.transport.pc }
  }

  async setMic(on: boolean): Promise<void> {
    this.micOn = on
    if (on) this.mutedBy = null
    polite(on ? words.devices.micOn : words.devices.micOff)
    if (on) await this.devices.open('microphone')
  }

  async setCam(on: boolean): Promise<void> {
    this.camOn = on
    polite(on ? words.devices.camOn : words.devices.camOff)
    if (on) await this.devices.open('camera')
    else this.devices.close('camera')
  }

  /** Leaves: the server hears it even while the page goes away. */
  leave(): void {
    this.#stop((transport) => disconnect(transport, this.wanted.pass.token))
  }

  #stop(close: (transport: Transport) => void): void {
    if (this.#ends.length === 0) return
    for (const end of this.#ends.splice(0)) end()
    clearTimeout(this.#ringTimer)
    clearTimeout(this.#controlTimer)
    for (const transport of [this.publication?.transport, this.play.transport]) {
      if (transport) close(transport)
    }
  }

  #end(said: Said): void {
    this.over ??= said
    assertive(said.text)
    // The server has ended the connections already.
    this.#stop((transport) => transport.pc.close())
  }

  /** Keeps senders and mute flags as the devices and switches are. */
  #follow(): void {
    this.#ends.push(
      $effect.root(() => {
        $effect(() => {
          const track = this.devices.micTrack
          if (track) track.enabled = this.micOn
          void this.publication?.audio.replaceTrack(track)
        })
        $effect(() => void this.publication?.video.replaceTrack(this.camOn ? this.devices.camTrack : null))
        // A switch is not on for a device that is not there. One that is still asked for may come.
        $effect(() => {
          if (this.micOn && isAbsent(this.devices.microphone)) this.micOn = false
          if (this.camOn && isAbsent(this.devices.camera)) this.camOn = false
        })
        $effect(() => this.#tell(trackIds(this.room, this.me.identity), { microphone: this.micOn, camera: this.camOn }))
        $effect(() => this.#heard(this.room.speakers))
      }),
    )
  }

  #listen(): void {
    const { token } = this.wanted.pass
    const close = openEvents(this.wanted.room, this.id, token, {
      event: (event) => this.#hear(event),
      live: (live) => {
        // The browser tries again every few seconds: it counts from the first failure on.
        if (!live) this.#controlTimer ||= window.setTimeout(() => (this.controlLost = true), 5000)
        else {
          clearTimeout(this.#controlTimer)
          this.#controlTimer = 0
          this.controlLost = false
        }
      },
      refused: () => void this.#ask(),
    })
    this.#ends.push(close)
  }

  /** The stream was refused: the session may be over, and the server knows why. */
  async #ask(): Promise<void> {
    const problem = this.id ? await whyGone(this.id, this.wanted.pass.token) : null
    // Its person may have left while the server was asked.
    if (this.#ends.length === 0) return
    const again = () => void setTimeout(() => this.#ends.length > 0 && this.#listen(), 3000)
    if (!problem) return again()
    switch (fateOf(problem)) {
      case 'over':
        return this.#end(sayProblem(problem, this.wanted.room))
      case 'lost':
        return this.link.fail()
      case 'neverOpened':
        return this.link.neverOpened()
      case 'goesOn':
        return again()
    }
  }

  #hear(event: RoomEvent): void {
    this.room = reduce(this.room, event, this.me)
    if (event.event === 'room_finished') this.#end(this.#finished(event))
    else if (event.event === 'message_to_you') this.#hearMessage(event)
  }

  #finished({ reason, by }: Extract<RoomEvent, { event: 'room_finished' }>): Said {
    if (reason === 'server_shutdown') return { text: words.refused.draining, actions: ['tryAgain'] }
    return { text: words.byOthers.closed(this.#host(by), clock(new Date())), actions: ['startPage'] }
  }

  #hearMessage({ what, by, track }: Extract<RoomEvent, { event: 'message_to_you' }>): void {
    const host = this.#host(by)
    switch (what) {
      case 'muted':
        return this.#mutedByOther(host, track)
      case 'unmuted':
        return this.#unmutedByOther(track)
      case 'removed':
        return this.#end({ text: words.byOthers.removed(host), actions: ['startPage'] })
      case 'replaced':
        return this.#end({ text: words.byOthers.elsewhere, actions: ['useThisTab'] })
      case 'join_again':
        return this.link.fail()
      case 'moving':
        this.moving = true
        return
      default:
        // A newer server may say more; what this page does not know changes nothing.
        what satisfies never
    }
  }

  #mutedByOther(host: string | null, track: string | null): void {
    const ids = trackIds(this.room, this.me.identity)
    if (track !== null) this.#toldMuted.set(track, true)
    if (track !== null && track === ids.get('camera')) {
      this.camOn = false
      this.devices.close('camera')
      return
    }
    this.micOn = false
    this.mutedBy = host ? words.byOthers.mutedSoft(host) : words.byOthers.mutedByServer
    assertive(this.mutedBy)
  }

  /** We may be heard again, but only our own person turns a microphone or camera on: a switch that is off is told anew. */
  #unmutedByOther(track: string | null): void {
    const ids = trackIds(this.room, this.me.identity)
    if (track === null || track !== ids.get('camera')) this.mutedBy = null
    if (track !== null) this.#toldMuted.set(track, false)
    this.#tell(ids, { microphone: this.micOn, camera: this.camOn })
  }

  /** The name of an admin who acts, with what it is. */
  #host(by: string | null): string | null {
    return by === null ? null : words.byOthers.host(this.room.participants.get(by)?.name ?? by)
  }

  /** Tells the server of own tracks whose switch stands otherwise than it knows. A new track counts there as unmuted. */
  #tell(tracks: ReadonlyMap<Source, string>, on: { microphone: boolean; camera: boolean }): void {
    const changed: Record<string, boolean> = {}
    for (const source of ['microphone', 'camera'] as const) {
      const id = tracks.get(source)
      if (id === undefined || (this.#toldMuted.get(id) ?? false) === !on[source]) continue
      this.#toldMuted.set(id, !on[source])
      changed[id] = !on[source]
    }
    const session = this.id
    if (session === null || Object.keys(changed).length === 0) return
    // One after another: a quick double press must not arrive in the wrong order.
    this.#telling = this.#telling
      .then(() => patchMuted(session, changed, this.wanted.pass.token))
      .catch((error: unknown) => {
        for (const id of Object.keys(changed)) this.#toldMuted.delete(id)
        console.warn('mute was not told to the server', error)
      })
  }

  #heard(speakers: readonly string[]): void {
    clearTimeout(this.#ringTimer)
    this.#ring.heard(speakers, performance.now())
    const light = () => {
      const { lit, nextMs } = this.#ring.at(performance.now())
      this.lit = lit
      if (nextMs !== null) this.#ringTimer = window.setTimeout(light, nextMs - performance.now() + 1)
    }
    light()
  }

  async #measure(): Promise<void> {
    const nowMs = performance.now()
    const report = await this.#health.read(this.publication?.transport.pc ?? null, this.play.transport.pc, nowMs)
    this.report = report
    this.upload = this.#steady.up.next(rate(report.up.measured), nowMs)
    this.download = this.#steady.down.next(rate(report.down.measured), nowMs)
  }
}

function isAbsent(state: DeviceState): boolean {
  return state !== 'open' && state !== 'asking' && state !== 'closed'
}
