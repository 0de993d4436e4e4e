// Stands between browsers and a server, so that a check can cut what a network cuts: requests, media, or both.
import { createSocket } from 'node:dgram'
import { createServer, request as ask } from 'node:http'

/** Media by way of ports of our own. `cut` drops every datagram, in both directions. */
export class MediaRelay {
  cut = false
  #ports = new Map()
  #sockets = []

  /** The description or fragment with our ports in place of the server's. */
  async through(text) {
    const candidate = /^(a=candidate:\S+ \d+ udp \d+ )(\S+) (\d+)( typ host.*)$/gim
    for (const [, , host, port] of text.matchAll(candidate)) await this.#port(host, Number(port))
    return text.replace(candidate, (_, head, host, port, tail) => `${head}127.0.0.1 ${this.#ports.get(`${host} ${port}`)}${tail}`)
  }

  async #port(host, port) {
    const key = `${host} ${port}`
    if (this.#ports.has(key)) return
    const outer = await this.#bind()
    this.#ports.set(key, outer.address().port)
    const inner = new Map()
    outer.on('message', async (data, { address, port: from }) => {
      if (this.cut) return
      const client = `${address} ${from}`
      if (!inner.has(client)) {
        const opening = this.#bind()
        inner.set(client, opening)
        ;(await opening).on('message', (answer) => this.cut || outer.send(answer, from, address))
      }
      ;(await inner.get(client)).send(data, port, host)
    })
  }

  async #bind() {
    const socket = createSocket('udp4')
    this.#sockets.push(socket)
    await new Promise((resolve) => socket.bind(0, '127.0.0.1', resolve))
    // What arrives at a closed port comes back as an error: the other end has gone, and that is all.
    socket.on('error', () => undefined)
    return socket
  }

  close() {
    for (const socket of this.#sockets) socket.close()
  }
}

/** A server's twin at another address: `url`, `media.cut`, and `cut`, which breaks every request and stream. */
export async function startRelay(target) {
  const media = new MediaRelay()
  const sockets = new Set()
  let down = false
  const server = createServer(async (incoming, outgoing) => {
    const chunks = []
    for await (const chunk of incoming) chunks.push(chunk)
    const onward = ask(target + incoming.url, { method: incoming.method, headers: incoming.headers }, async (answer) => {
      const headers = { ...answer.headers }
      if (!/application\/(sdp|trickle-ice-sdpfrag)/.test(headers['content-type'] ?? '')) {
        outgoing.writeHead(answer.statusCode, headers)
        return answer.pipe(outgoing)
      }
      let body = ''
      for await (const chunk of answer) body += chunk
      delete headers['content-length']
      outgoing.writeHead(answer.statusCode, headers)
      outgoing.end(await media.through(body))
    })
    onward.on('error', () => outgoing.destroy())
    outgoing.on('close', () => onward.destroy())
    onward.end(Buffer.concat(chunks))
  })
  server.on('connection', (socket) => {
    if (down) return socket.destroy()
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => undefined)
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    media,
    set cut(broken) {
      down = broken
      if (broken) for (const socket of sockets) socket.destroy()
    },
    close() {
      server.closeAllConnections()
      server.close()
      media.close()
    },
  }
}
