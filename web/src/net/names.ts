/** What the server takes as the name of a room or an identity. */
const NAME = /^[A-Za-z0-9._~@:-]{1,128}$/

export function isName(text: string): boolean {
  return NAME.test(text)
}

/**
 * An identity for the name somebody typed: its letters and digits in ASCII, and four random characters, so that two
 * people of one name are two. `random`: four numbers of [0, 1).
 */
export function identityFor(name: string, random: readonly number[]): string {
  const slug = name
    .normalize('NFKD')
    .replace(/[^A-Za-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .toLowerCase()
    .slice(0, 32)
  const alphabet = 'abcdefghjkmnpqrstuvwxyz23456789'
  const suffix = random.map((r) => alphabet[Math.floor(r * alphabet.length)] ?? 'a').join('')
  return `${slug || 'person'}-${suffix}`
}

/** Up to two initials of a name, for a tile without a picture. */
export function initials(name: string): string {
  const parts = name.trim().split(/\s+/)
  const first = [...(parts[0] ?? '')][0] ?? '?'
  const last = parts.length > 1 ? ([...(parts.at(-1) ?? '')][0] ?? '') : ''
  return (first + last).toUpperCase()
}

/** What a page's address asks for. */
export interface Asked {
  page: 'meet' | 'watch'
  room: string | null
  token: string | null
}

/** Reads `/`, `/watch/{room}`, `?room=`, `?access_token=` and `#token=`. */
export function readAddress(url: URL): Asked {
  const watch = /^\/watch\/([^/]+)\/?$/.exec(url.pathname)
  const hash = new URLSearchParams(url.hash.slice(1))
  const token = url.searchParams.get('access_token') ?? hash.get('token')
  return {
    page: watch ? 'watch' : 'meet',
    room: watch ? safeDecode(watch[1] ?? '') : url.searchParams.get('room'),
    token: token || null,
  }
}

function safeDecode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** What a page reads from an access token. It is not verified here: the server does that. */
export interface Claims {
  identity: string | null
  name: string | null
  room: string | null
  canPublish: boolean
}

/** Reads the claims of a JWT, or nothing if it is none. */
export function readClaims(token: string): Claims | null {
  try {
    const payload = token.split('.')[1] ?? ''
    const bytes = Uint8Array.from(atob(payload.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0))
    const claims = JSON.parse(new TextDecoder().decode(bytes)) as Record<string, unknown>
    const video = (claims['video'] ?? {}) as Record<string, unknown>
    const text = (value: unknown) => (typeof value === 'string' && value !== '' ? value : null)
    return {
      identity: text(claims['sub']),
      name: text(claims['name']),
      room: text(video['room']),
      canPublish: video['canPublish'] !== false,
    }
  } catch {
    return null
  }
}
