/** The little of SDP that the page itself reads and writes. */

/** One section of a description. */
export interface Section {
  mid: string
  kind: 'audio' | 'video' | 'application'
  /** `a=msid:{stream} {track}`, where present. */
  msid: { stream: string; track: string } | null
}

function split(sdp: string): { head: string[]; sections: string[][] } {
  const head: string[] = []
  const sections: string[][] = []
  for (const line of sdp.split(/\r?\n/)) {
    if (line === '') continue
    if (line.startsWith('m=')) sections.push([line])
    else (sections.at(-1) ?? head).push(line)
  }
  return { head, sections }
}

function valueOf(lines: readonly string[], name: string): string | null {
  const prefix = `a=${name}:`
  return lines.find((line) => line.startsWith(prefix))?.slice(prefix.length) ?? null
}

/** The sections of a description, in order. */
export function sectionsOf(sdp: string): Section[] {
  return split(sdp).sections.map((lines) => {
    const [stream, track] = (valueOf(lines, 'msid') ?? '').split(' ')
    const kind = /^m=(audio|video)/.exec(lines[0] ?? '')?.[1] as 'audio' | 'video' | undefined
    return {
      mid: valueOf(lines, 'mid') ?? '',
      kind: kind ?? 'application',
      msid: stream && stream !== '-' && track ? { stream, track } : null,
    }
  })
}

/**
 * The same answer with the n-th audio and the n-th video section in one stream. The server puts one person's tracks into
 * such a pair, now and whenever the sections change hands; a browser keeps in step only what one description calls a
 * stream, and takes no later correction of it.
 */
export function withPairs(sdp: string): string {
  const { head, sections } = split(sdp)
  const counts = new Map<string, number>()
  const named = sections.map((lines) => {
    const kind = lines[0]?.split(' ')[0] ?? ''
    const ordinal = counts.get(kind) ?? 0
    counts.set(kind, ordinal + 1)
    const kept = lines.filter((line) => !line.startsWith('a=msid:') && !/^a=ssrc:\d+ (msid|mslabel|label):/.test(line))
    return [...kept, `a=msid:pair-${ordinal} ${valueOf(lines, 'mid') ?? ordinal}`]
  })
  return [...head, ...named.flat(), ''].join('\r\n')
}

/** ICE credentials of a description or a fragment: of its first section that has any (everything is bundled). */
export function iceOf(sdp: string): { ufrag: string; pwd: string } | null {
  const { head, sections } = split(sdp)
  const lines = [head, ...sections].find((part) => valueOf(part, 'ice-ufrag'))
  const ufrag = lines && valueOf(lines, 'ice-ufrag')
  const pwd = lines && valueOf(lines, 'ice-pwd')
  return ufrag && pwd ? { ufrag, pwd } : null
}

/**
 * Body of a trickle PATCH (RFC 8840 §9, RFC 9725 §4.3.2): candidates of the bundled transport, under the first section.
 * `candidates` as the browser gives them (`candidate:…`); `done` says that no more come.
 */
export function trickleFragment(localSdp: string, candidates: readonly string[], done: boolean): string | null {
  const ice = iceOf(localSdp)
  const first = split(localSdp).sections[0]
  if (!ice || !first) return null
  const lines = [
    first[0] ?? 'm=audio 9 UDP/TLS/RTP/SAVPF 0',
    `a=mid:${valueOf(first, 'mid') ?? '0'}`,
    `a=ice-ufrag:${ice.ufrag}`,
    `a=ice-pwd:${ice.pwd}`,
    ...candidates.map((candidate) => `a=${candidate}`),
    ...(done ? ['a=end-of-candidates'] : []),
  ]
  return lines.join('\r\n') + '\r\n'
}

/**
 * An answer as an ICE restart changes it (RFC 9725 §4.3.3): the credentials of `fragment` in every section, and its
 * candidates in place of the old ones where it brings any. Nothing if the fragment has no credentials.
 */
export function withRestart(answer: string, fragment: string): string | null {
  const ice = iceOf(fragment)
  if (!ice) return null
  const candidates = fragment.split(/\r?\n/).filter((line) => line.startsWith('a=candidate:'))
  const changed = (lines: readonly string[]) =>
    lines
      .filter((line) => candidates.length === 0 || !/^a=(candidate:|end-of-candidates)/.test(line))
      .map((line) =>
        line.startsWith('a=ice-ufrag:') ? `a=ice-ufrag:${ice.ufrag}` : line.startsWith('a=ice-pwd:') ? `a=ice-pwd:${ice.pwd}` : line,
      )
  const { head, sections } = split(answer)
  // Everything is bundled on the first section's transport: its candidates are the ones that count.
  const bodies = sections.map((lines, n) => (n === 0 ? [...changed(lines), ...candidates] : changed(lines)))
  return [...changed(head), ...bodies.flat(), ''].join('\r\n')
}
