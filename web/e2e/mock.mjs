// A server of the page's protocol without media of its own: states that a real server reaches only with effort are set
// here by hand. Media, where a check needs it, comes from a second browser page (peer.html).
import { createServer } from 'node:http'
import { readFile } from 'node:fs/promises'
import { extname } from 'node:path'
import { fileURLToPath } from 'node:url'

const dist = fileURLToPath(new URL('../dist', import.meta.url))
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' }
/** The policy that the pages have to live under: at least as strict as the server's (`src/doors/page.rs`). */
const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self' blob:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

/** An answer that takes the layers of the offer (RFC 8853). The peer gets packets of layers that it knows nothing of. */
function withLayers(offer, answer) {
  const rids = [...offer.matchAll(/a=rid:(\S+) send/g)].map(([, rid]) => rid)
  if (rids.length === 0) return answer
  const at = answer.indexOf('m=video')
  const lines = [...rids.map((rid) => `a=rid:${rid} recv`), `a=simulcast:recv ${rids.join(';')}`]
  return answer.slice(0, at) + answer.slice(at).replace(/(a=mid:\S+\r\n)/, `$1${lines.join('\r\n')}\r\n`)
}

/**
 * `answer(id, offer, send, screens)`: gives an SDP answer. `restart(id, fragment)`: the fragment of an ICE restart's answer.
 * Returns the mock: its URL, its switches, what it was told.
 */
export async function startMock(answer, restart) {
  const mock = {
    url: '',
    /** Refuse the next joins with this: `{status, code, detail, headers}`. */
    refuse: null,
    /** No dev tokens: `--dev` is off. */
    devTokens: true,
    /** Who is in, besides the one who joins. */
    others: [],
    /** Requests as `METHOD path`, with bodies of PATCH. */
    log: [],
    /** Refuse ICE restarts, as servers do that have none. */
    restarts: true,
    /** Refuse the next screens with this. */
    refuseScreen: null,
    /** Pictures and sounds that are really sent: those of the first so many. */
    sent: 8,
    /** Answer without candidates: the media path never opens. */
    noPath: false,
    /** Event streams are cut at once. */
    eventsDown: false,
    /** Event streams are refused. */
    eventsRefused: false,
    /** Sessions are gone, for this reason. */
    gone: null,
    /** Take all layers of a camera that is offered in several; else the first, as a server without simulcast. */
    simulcast: false,
    /** What the session's statistics say that the path to the page takes, bit/s. */
    estimate: null,
    /** The newest offer of a camera. */
    offer: '',
    /** Delay of every answer, ms. */
    delayMs: 0,
    send: null,
    drop: null,
    close: null,
  }
  let streams = []
  let me = null
  let next = 1

  const participant = (identity, name, published = true) => ({
    identity,
    name,
    session: `PA_${identity}`,
    metadata: '',
    joined_at_ms: Date.now(),
    state: 'connected',
    tracks: published
      ? [
          { id: `TR_${identity}_a`, source: 'microphone', kind: 'audio', codec: 'opus', muted: false },
          { id: `TR_${identity}_v`, source: 'camera', kind: 'video', codec: 'vp8', muted: false },
        ]
      : [],
  })
  mock.participant = participant
  const room = (name) => ({
    id: 'RM_mock',
    name,
    kind: 'conference',
    worker: 0,
    created_at_ms: Date.now(),
    max_participants: 50,
    metadata: '',
    participants: [...mock.others, ...(me ? [me] : [])],
  })
  const write = (response, event) => response.write(`event: ${event.event}\ndata: ${JSON.stringify(event)}\n\n`)
  mock.send = (event) => streams.forEach((stream) => write(stream, event))
  mock.me = () => me
  mock.drop = () => streams.splice(0).forEach((stream) => stream.destroy())
  mock.reset = () => {
    mock.drop()
    Object.assign(mock, { refuse: null, devTokens: true, others: [], log: [], given: [], restarts: true, refuseScreen: null, sent: 8, noPath: false, eventsDown: false, eventsRefused: false, gone: null, simulcast: false, estimate: null, offer: '', delayMs: 0 })
    me = null
  }

  const problem = (response, { status, code, detail = '', headers = {} }) => {
    response.writeHead(status, { 'content-type': 'application/problem+json', ...headers })
    response.end(JSON.stringify({ status, code, title: code, detail }))
  }

  async function serve(request, response) {
    const url = new URL(request.url, mock.url)
    const parts = url.pathname.split('/').map(decodeURIComponent)
    let body = ''
    for await (const chunk of request) body += chunk
    if (!url.pathname.startsWith('/assets')) mock.log.push(`${request.method} ${url.pathname}${request.method === 'PATCH' ? ` ${body}` : ''}`)
    if (mock.delayMs && request.method === 'POST') await new Promise((resolve) => setTimeout(resolve, mock.delayMs))

    if (url.pathname === '/peer.html') {
      response.writeHead(200, { 'content-type': 'text/html' })
      return response.end(await readFile(new URL('peer.html', import.meta.url)))
    }
    if (request.method === 'GET' && (url.pathname === '/' || parts[1] === 'watch' || parts[1] === 'assets')) {
      const file = parts[1] === 'assets' ? url.pathname : '/index.html'
      response.writeHead(200, { 'content-type': types[extname(file)] ?? 'text/plain', 'content-security-policy': CSP })
      return response.end(await readFile(dist + file).catch(() => ''))
    }
    if (url.pathname === '/api/v1/dev/token') {
      if (!mock.devTokens) return problem(response, { status: 404, code: 'not_found' })
      const { identity, name } = JSON.parse(body)
      me = participant(identity, name)
      response.setHeader('content-type', 'application/json')
      return response.end(JSON.stringify({ token: `mock.${identity}`, identity }))
    }
    if (request.method === 'POST' && (parts[1] === 'whip' || parts[1] === 'whep')) {
      const screen = url.searchParams.get('source') === 'screen'
      if (mock.refuse) return problem(response, mock.refuse)
      if (screen && mock.refuseScreen) return problem(response, mock.refuseScreen)
      const id = `TP_${next++}`
      const offer = mock.noPath ? body.replace(/a=candidate:.*\r\n/g, '') : body
      const videos = mock.others.flatMap(({ tracks }) => tracks.filter(({ kind }) => kind === 'video'))
      const send = parts[1] === 'whip' ? 0 : Math.min(mock.sent, Math.max(1, videos.length))
      let sdp = await answer(id, offer, send, videos.map(({ source }) => source === 'screen'))
      if (mock.noPath) sdp = sdp.replace(/a=candidate:.*\r\n/g, '')
      if (parts[1] === 'whip' && !screen) mock.offer = body
      if (parts[1] === 'whip' && mock.simulcast) sdp = withLayers(body, sdp)
      if (parts[1] === 'whep') mock.play = { id, sdp }
      if (screen) published({ id: `TR_${me.identity}_s`, source: 'screen', kind: 'video', codec: 'vp8', muted: false }, id)
      mock.given.push(`/transports/${id}`)
      response.writeHead(201, {
        'content-type': 'application/sdp',
        location: `/transports/${id}`,
        etag: '"mock"',
        'rondo-session': `PA_${me?.identity}`,
      })
      if (parts[1] === 'whep') for (const section of sections()) mock.send({ event: 'section_assigned', ...section })
      return response.end(sdp)
    }
    if (parts[1] === 'transports') {
      if (request.method === 'DELETE' && mock.screen === parts[2]) published(null, null)
      if (request.headers['if-match'] === '*') {
        if (mock.gone) return problem(response, { status: 404, code: mock.gone })
        if (!mock.restarts) return problem(response, { status: 422, code: 'ice_restart_unsupported' })
        const fragment = await restart(parts[2], body)
        response.writeHead(200, { 'content-type': 'application/trickle-ice-sdpfrag', etag: '"mock-2"' })
        return response.end(fragment)
      }
      response.writeHead(request.method === 'PATCH' ? 204 : 200)
      return response.end()
    }
    if (url.pathname.startsWith('/api/v1/rooms/') && !parts[5] && mock.others.length === 0) {
      return problem(response, { status: 404, code: 'room_not_found' })
    }
    if (parts[5] === 'events') {
      if (mock.eventsRefused) return problem(response, { status: 404, code: 'replaced' })
      if (mock.eventsDown) return response.destroy()
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      write(response, { event: 'snapshot', room: room(parts[4]), sections: sections(), you: me?.session ?? null, speakers: [] })
      streams.push(response)
      return request.on('close', () => (streams = streams.filter((stream) => stream !== response)))
    }
    if (url.pathname.startsWith('/api/v1/rooms/')) {
      response.setHeader('content-type', 'application/json')
      return response.end(JSON.stringify(room(parts[4])))
    }
    if (url.pathname.startsWith('/api/v1/sessions/')) {
      if (mock.gone) return problem(response, { status: 404, code: mock.gone })
      if (request.method === 'PATCH') patched(JSON.parse(body))
      response.setHeader('content-type', 'application/json')
      const transports = [{ id: mock.play?.id, door: 'whep', estimate_bits_per_second: mock.estimate }]
      return response.end(JSON.stringify(request.method === 'GET' ? { transports } : {}))
    }
    problem(response, { status: 404, code: 'not_found' })
  }

  /** Our own screen begins or, without a track, ends. */
  function published(track, transport) {
    const old = me.tracks.find(({ source }) => source === 'screen')
    me.tracks = [...me.tracks.filter(({ source }) => source !== 'screen'), ...(track ? [track] : [])]
    mock.screen = transport
    if (track) mock.send({ event: 'track_published', identity: me.identity, track })
    else mock.send({ event: 'track_unpublished', identity: me.identity, track: old, reason: 'client_left' })
  }

  function patched({ muted = {} }) {
    for (const track of me?.tracks ?? []) {
      if (!(track.id in muted)) continue
      track.muted = muted[track.id]
      mock.send({ event: track.muted ? 'track_muted' : 'track_unmuted', identity: me.identity, track })
    }
  }

  /** Sections in order, as the answer's mids: one of each kind for each other participant. */
  function sections() {
    const mids = { audio: [], video: [] }
    for (const part of (mock.play?.sdp ?? '').split('\nm=').slice(1)) {
      mids[part.slice(0, 5)]?.push(/a=mid:(\S+)/.exec(part)?.[1])
    }
    const all = mock.others.flatMap(({ identity, tracks }) => tracks.map((track) => ({ ...track, identity })))
    return ['audio', 'video'].flatMap((kind) =>
      all
        .filter((track) => track.kind === kind)
        .slice(0, mids[kind].length)
        .map(({ id, identity }, n) => ({ transport: mock.play.id, mid: mids[kind][n], track: id, identity })),
    )
  }

  const server = createServer((request, response) => {
    serve(request, response).catch((error) => {
      console.error(error)
      if (!response.headersSent) problem(response, { status: 500, code: 'internal' })
      else response.end()
    })
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  mock.url = `http://127.0.0.1:${server.address().port}`
  mock.close = () => {
    mock.drop()
    server.closeAllConnections()
    server.close()
  }
  return mock
}
