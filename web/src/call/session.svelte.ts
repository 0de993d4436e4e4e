import { untrack } from 'svelte'
import { estimateOf, whyGone, type Pass, type Wish } from '../net/api'
import { openEvents, type RoomEvent } from '../net/events'
import { clock, sayProblem } from '../net/problem'
import { connected, disconnect, type Transport } from '../net/transport'
import { assertive, polite } from '../ui/announce'
import { words, type Said } from '../words'
import type { Devices, DeviceState } from '../media/devices.svelte'
import { Estimate } from './estimate'
import { fateOf } from './fate'
import { Health, type Report } from './health'
import { remember, type Sample } from './history'
import { OwnLayers } from './layers'
import { Link } from './link.svelte'
import { Mending, type Lane } from './mending'
import { Mutes } from './mutes'
import { FEW, MANY, Playback, publish, sectionsFor, type Publication, type Sections, type Stay } from './peer'
import { Promoter } from './promote'
import { rate, Steady, type Quality } from './quality'
import { Ring } from './ring'
import { emptyRoom, isOther, missed, reduce, trackIds, type Me, type Missed, type Room } from './room'
import { Screen } from './screen.svelte'
import { StatsReader } from './stats'
import { Wishes } from './wishes'

export interface Wanted {
  room: string
  name: string
  pass: Pass
  /** False on the watch page, and where the token forbids it. */
  publishes: boolean
  micOn: boolean
  camOn: boolean
  /** How many are in already, where that is known. */
  others: number
}

/** A picture that the stage shows: of which track, in physical pixels. */
export interface Shown {
  track: string
  widthPx: number
  heightPx: number
  /** Everybody is to look at it: it is pinned, or a screen. */
  onStage: boolean
}

/** Priority of what is on the stage (`Wish`). */
const STAGE = 2
const UP_MS = 8_000
const GROW_AGAIN_MS = 10_000
/** A hidden tab needs no pictures; its sound goes on. */
const HIDDEN_MS = 10_000
/** For so long the server repeats what a stream missed (interfaces §6): news of a replacement may be of our own. */
const REPEATED_MS = 65_000

/** One stay in one room: its connections, the room as it is told, and what the page's own person does. */
export class Session {
  room = $state.raw<Room>(emptyRoom)
  play: Playback = $state.raw() as Playback
  publication = $state.raw<Publication | null>(null)
  /** Why it is over; nothing while it goes on. */
  over = $state.raw<Said | null>(null)
  micOn = $state(false)
  camOn = $state(false)
  /** Who muted us, until we unmute. */
  mutedBy = $state<string | null>(null)
  moving = $state(false)
  controlLost = $state(false)
  /** Packets came within the last second. */
  flows = $state(true)
  lit = $state.raw<ReadonlySet<string>>(new Set())
  report = $state.raw<Report | null>(null)
  /** The last minute, a sample a second. */
  samples = $state.raw<readonly Sample[]>([])
  upload = $state<Quality>('none')
  download = $state<Quality>('none')
  /** People of whom something that is wanted has no section, for 3 s and more. */
  missed = $state.raw<Missed>({ unheard: 0, unshown: 0 })
  /** Places of the first page while it is shown and not all fit; else 0, and nobody is moved. */
  firstPage = $state(0)
  readonly link = new Link(performance.now())
  readonly screen: Screen
  readonly startedMs = Date.now()
  /** Known only while it is watched. */
  readonly estimate = new Estimate(async () => (this.#id ? estimateOf(this.#id, this.me.transport, this.#stay.token) : null))

  readonly #stay: Stay
  readonly #mending: Mending
  readonly #wishes: Wishes
  readonly #ring = new Ring()
  readonly #promoter = new Promoter()
  readonly #health = new Health()
  readonly #steady = { up: new Steady(), down: new Steady() }
  readonly #mutes = new Mutes()
  readonly #layers = new OwnLayers()
  readonly #ends: (() => void)[] = []
  #shown = $state.raw<readonly Shown[]>([])
  #hidden = $state(false)
  #id: string | null
  #readers: { up: StatsReader | null; down: StatsReader }
  #closeEvents: () => void = () => undefined
  /** News of a play connection that is being made. */
  #early: RoomEvent[] | null = null
  #replaying: Promise<void> | null = null
  /** Of the last three seconds. */
  #missed: Missed[] = []
  #ringTimer = 0
  #promoteTimer = 0
  #controlTimer = 0

  private constructor(
    readonly wanted: Wanted,
    readonly devices: Devices,
    play: Playback,
    publication: Publication | null,
  ) {
    this.#stay = stayOf(wanted)
    this.play = play
    this.publication = publication
    this.#id = publication?.transport.session ?? play.transport.session
    this.#readers = { up: null, down: new StatsReader(play.transport.pc) }
    this.micOn = wanted.micOn && wanted.publishes
    this.camOn = wanted.camOn && wanted.publishes
    this.room = { ...emptyRoom, sections: play.firstSections() }
    this.screen = new Screen(this.#stay)
    this.#wishes = new Wishes(() => this.#id, wanted.pass.token, () => this.#health.anew())
    this.#follow()
    this.#listen()
    this.#mending = new Mending(
      {
        link: this.link,
        token: wanted.pass.token,
        session: () => this.#id,
        over: (problem) => this.#end(sayProblem(problem, wanted.room)),
      },
      this.#lanes(),
    )
    const stats = setInterval(() => void this.#measure(), 1000)
    const leaveWithPage = () => this.leave()
    addEventListener('pagehide', leaveWithPage)
    this.#ends.push(
      () => clearInterval(stats),
      () => removeEventListener('pagehide', leaveWithPage),
      () => this.#mending.end(),
      () => this.#wishes.end(),
      () => this.#layers.end(),
      () => this.#closeEvents(),
    )
  }

  /** Joins: both connections at once. If one is refused, the other is given back and the refusal is thrown. */
  static async join(wanted: Wanted, devices: Devices): Promise<Session> {
    const stay = stayOf(wanted)
    const [playing, publishing] = await Promise.allSettled([
      Playback.open(stay, sectionsFor(wanted.others)),
      wanted.publishes ? publish(stay, devices.micTrack, devices.camTrack) : null,
    ])
    if (playing.status === 'fulfilled' && publishing.status === 'fulfilled') {
      return new Session(wanted, devices, playing.value, publishing.value)
    }
    if (playing.status === 'fulfilled') disconnect(playing.value.transport, stay.token)
    if (publishing.status === 'fulfilled' && publishing.value) disconnect(publishing.value.transport, stay.token)
    throw playing.status === 'rejected' ? playing.reason : (publishing as PromiseRejectedResult).reason
  }

  get me(): Me {
    return { identity: this.#stay.identity, transport: this.play.transport.id }
  }

  /** `PA_…` */
  get id(): string | null {
    return this.#id
  }

  /** The browser's own connection objects. */
  get connections(): { publish: RTCPeerConnection | null; play: RTCPeerConnection; screen: RTCPeerConnection | null } {
    return {
      publish: this.publication?.transport.pc ?? null,
      play: this.play.transport.pc,
      screen: this.screen.publication?.transport.pc ?? null,
    }
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

  /** The stage shows these pictures; the server sends no others. */
  show(pictures: readonly Shown[]): void {
    this.#shown = pictures
  }

  #stop(close: (transport: Transport) => void): void {
    if (this.#ends.length === 0) return
    for (const end of this.#ends.splice(0)) end()
    for (const timer of [this.#ringTimer, this.#promoteTimer, this.#controlTimer]) clearTimeout(timer)
    this.screen.stop()
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
          void this.publication?.audio?.replaceTrack(track)
        })
        $effect(() => void this.publication?.video.replaceTrack(this.camOn ? this.devices.camTrack : null))
        // A switch is not on for a device that is not there. One that is still asked for may come.
        $effect(() => {
          if (this.micOn && isAbsent(this.devices.microphone)) this.micOn = false
          if (this.camOn && isAbsent(this.devices.camera)) this.camOn = false
        })
        $effect(() => this.#tell())
        $effect(() => this.#heard(this.room.speakers))
        $effect(() => {
          if (this.firstPage > 0) this.#promote()
        })
        $effect(() => this.#wishes.want(this.#wish()))
        $effect(() => {
          if (this.room.missing > 0 && this.play.asked === FEW && this.link.state === 'connected') void this.#grow()
        })
        $effect(() => hiddenFor(HIDDEN_MS, (hidden) => (this.#hidden = hidden)))
      }),
    )
  }

  /** How each connection is made anew when nothing else brings it back. */
  #lanes(): Lane[] {
    return [
      { transport: () => this.play.transport, renew: () => this.#replay(this.play.asked) },
      { transport: () => this.publication?.transport ?? null, renew: () => this.#republish() },
      { transport: () => this.screen.publication?.transport ?? null, renew: () => this.screen.publish() },
    ]
  }

  /** Publishes anew; the server takes it for the old one's successor (interfaces §3). */
  async #republish(): Promise<void> {
    const old = this.publication
    const next = await publish(this.#stay, this.devices.micTrack, this.camOn ? this.devices.camTrack : null)
    if (this.#ends.length === 0) return disconnect(next.transport, this.#stay.token)
    this.publication = next
    old?.transport.pc.close()
    this.#sessionIs(next.transport.session)
    await connected(next.transport.pc, UP_MS)
  }

  /** Plays over a new connection, and gives the old one up when the new one is up: till then its last pictures stay. */
  #replay(asked: Sections): Promise<void> {
    this.#replaying ??= this.#playAnew(asked).finally(() => {
      this.#replaying = null
      this.#early = null
    })
    return this.#replaying
  }

  async #playAnew(asked: Sections): Promise<void> {
    const early: RoomEvent[] = []
    this.#early = early
    const next = await Playback.open(this.#stay, asked)
    await connected(next.transport.pc, UP_MS).catch((error: unknown) => {
      disconnect(next.transport, this.#stay.token)
      throw error
    })
    if (this.#ends.length === 0) return disconnect(next.transport, this.#stay.token)
    const old = this.play
    this.play = next
    const anew: Room = { ...this.room, sections: next.firstSections(), missing: 0, undecodable: new Map() }
    this.room = early.reduce((room, event) => reduce(room, event, this.me), anew)
    disconnect(old.transport, this.#stay.token)
    this.#health.anew()
    this.#wishes.forget()
    this.#sessionIs(next.transport.session)
  }

  /** More are here than the sections asked for. */
  async #grow(): Promise<void> {
    try {
      await this.#replay(MANY)
    } catch (error) {
      console.warn('no connection for more people', error)
      const timer = setTimeout(() => void this.#grow(), GROW_AGAIN_MS)
      this.#ends.push(() => clearTimeout(timer))
    }
  }

  /** A stay that ended at the server has another session after it came back. */
  #sessionIs(id: string | null): void {
    if (id === null || id === this.#id) return
    this.#id = id
    this.#listen()
  }

  /** What is wanted of every picture in the room. Sound is always wanted. */
  #wish(): Wish[] {
    const shown = new Map(this.#hidden ? [] : this.#shown.map((picture) => [picture.track, picture]))
    return [...this.room.participants.values()].flatMap((participant) =>
      isOther(participant, this.me)
        ? participant.tracks.flatMap((track): Wish[] => {
            if (track.kind !== 'video') return []
            const picture = shown.get(track.id)
            if (!picture) return [{ track: track.id, paused: true }]
            const { widthPx, heightPx, onStage } = picture
            return [{ track: track.id, paused: false, width_px: widthPx, height_px: heightPx, priority: onStage ? STAGE : 0 }]
          })
        : [],
    )
  }

  #listen(): void {
    this.#closeEvents()
    this.#closeEvents = openEvents(this.wanted.room, this.#id, this.#stay.token, {
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
  }

  /** The stream was refused: the session may be over, and the server knows why. */
  async #ask(): Promise<void> {
    const asked = this.#id
    const problem = asked ? await whyGone(asked, this.#stay.token) : null
    // Its person may have left while the server was asked, or another session may have come.
    if (this.#ends.length === 0 || asked !== this.#id) return
    const fate = problem ? fateOf(problem) : 'goesOn'
    if (problem && fate === 'over') return this.#end(sayProblem(problem, this.wanted.room))
    if (fate === 'neverOpened' && this.link.joining) return this.link.neverOpened()
    if (fate !== 'goesOn') this.#mending.mendAll()
    setTimeout(() => this.#ends.length > 0 && asked === this.#id && this.#listen(), 3000)
  }

  #hear(event: RoomEvent): void {
    this.#keepEarly(event)
    this.room = reduce(this.room, event, this.me)
    if (event.event === 'room_finished') this.#end(this.#finished(event))
    else if (event.event === 'message_to_you') this.#hearMessage(event)
    else if (event.event === 'snapshot') this.#layers.anew()
    else if (event.event === 'track_unpublished') this.#layers.gone(event.track.id)
    else if (event.event === 'layers_wanted') this.#layers.hear(event.track, this.#senderOf(event.track), event.layers)
  }

  /** What sends one of our pictures. */
  #senderOf(track: string): RTCRtpSender | null {
    const ids = trackIds(this.room, this.me.identity)
    if (track === ids.get('camera')) return this.publication?.video ?? null
    return track === ids.get('screen') ? (this.screen.publication?.video ?? null) : null
  }

  #keepEarly(event: RoomEvent): void {
    if (this.#early === null) return
    if (event.event === 'snapshot') {
      for (const section of event.sections) this.#early.push({ event: 'section_assigned', ...section })
    } else if ('transport' in event && event.transport !== this.me.transport) this.#early.push(event)
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
        // By ourselves, when a connection was made anew. Had another tab taken our place, our own connection ends.
        if (performance.now() - this.#mending.renewedMs < REPEATED_MS) return
        return this.#end({ text: words.byOthers.elsewhere, actions: ['useThisTab'] })
      case 'join_again':
        return this.#mending.mendAll()
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
    if (track !== null) this.#mutes.changed(track, true)
    if (track !== null && track === ids.get('camera')) {
      this.camOn = false
      this.devices.close('camera')
    } else if (track !== null && (track === ids.get('screen') || track === ids.get('screen_audio'))) {
      this.screen.stop()
      this.screen.refused = { text: host ? words.share.stoppedBy(host) : words.share.stoppedByServer, actions: [] }
    } else {
      this.micOn = false
      this.mutedBy = host ? words.byOthers.mutedSoft(host) : words.byOthers.mutedByServer
      assertive(this.mutedBy)
    }
  }

  /** We may be heard again, but only our own person turns a microphone or camera on: a switch that is off is told anew. */
  #unmutedByOther(track: string | null): void {
    const ids = trackIds(this.room, this.me.identity)
    if (track === null || track !== ids.get('camera')) this.mutedBy = null
    if (track !== null) this.#mutes.changed(track, false)
    this.#tell()
  }

  #tell(): void {
    const tracks = trackIds(this.room, this.me.identity)
    this.#mutes.tell(this.#id, tracks, { microphone: this.micOn, camera: this.camOn }, this.#stay.token)
  }

  /** The name of an admin who acts, with what it is. */
  #host(by: string | null): string | null {
    return by === null ? null : words.byOthers.host(this.room.participants.get(by)?.name ?? by)
  }

  #heard(speakers: readonly string[]): void {
    clearTimeout(this.#ringTimer)
    this.#ring.heard(speakers, performance.now())
    this.#promoter.heard(speakers, performance.now())
    untrack(() => this.#promote())
    const light = () => {
      const { lit, nextMs } = this.#ring.at(performance.now())
      this.lit = lit
      if (nextMs !== null) this.#ringTimer = window.setTimeout(light, nextMs - performance.now() + 1)
    }
    light()
  }

  /** Only in a room that does not fit on one page, and only while its first page is looked at. */
  #promote(): void {
    clearTimeout(this.#promoteTimer)
    const nowMs = performance.now()
    const { places, nextMs } = this.#promoter.next(this.room.places, this.firstPage, nowMs)
    if (places) this.room = { ...this.room, places }
    if (nextMs !== null) this.#promoteTimer = window.setTimeout(() => this.#promote(), nextMs - nowMs + 1)
  }

  async #measure(): Promise<void> {
    const publishing = this.publication?.transport.pc ?? null
    if (this.#readers.down.pc !== this.play.transport.pc) this.#readers.down = new StatsReader(this.play.transport.pc)
    if (this.#readers.up?.pc !== publishing) this.#readers.up = publishing && new StatsReader(publishing)
    const [up, down] = await Promise.all([this.#readers.up?.read() ?? [], this.#readers.down.read()])
    const nowMs = performance.now()
    const report = this.#health.read(up, down, nowMs)
    this.report = report
    this.samples = remember(this.samples, {
      atMs: nowMs,
      sentBps: publishing && report.up.bps,
      canSendBps: report.canSendBps,
      gotBps: report.down.bps,
      canGetBps: this.estimate.at(nowMs),
      lostUp: report.up.measured.loss,
      lostDown: report.down.measured.loss,
    })
    this.flows = this.#mending.flows
    const now = missed(this.room, this.me, new Set(this.#shown.map(({ track }) => track)))
    this.#missed = [...this.#missed.slice(-2), now]
    const least = (of: keyof Missed) => (this.#missed.length < 3 ? 0 : Math.min(...this.#missed.map((one) => one[of])))
    this.missed = { unheard: least('unheard'), unshown: least('unshown') }
    this.upload = this.#steady.up.next(rate(report.up.measured), nowMs)
    this.download = this.#steady.down.next(rate(report.down.measured), nowMs)
  }
}

function stayOf({ room, pass }: Wanted): Stay {
  return { room, identity: pass.identity, token: pass.token }
}

/** Tells when the page has been hidden for so long, and when it is seen again. Returns what ends it. */
function hiddenFor(ms: number, tell: (hidden: boolean) => void): () => void {
  let timer = 0
  const look = () => {
    clearTimeout(timer)
    if (document.hidden) timer = window.setTimeout(() => tell(true), ms)
    else tell(false)
  }
  document.addEventListener('visibilitychange', look)
  return () => {
    clearTimeout(timer)
    document.removeEventListener('visibilitychange', look)
  }
}

function isAbsent(state: DeviceState): boolean {
  return state !== 'open' && state !== 'asking' && state !== 'closed'
}
