/**
 * Who sits where. Arrival order; a leaver's place goes to the last one, and nobody else moves.
 * `places`: identities as they sit now. `present`: who is there, in order of arrival.
 */
export function reseat(places: readonly string[], present: readonly string[]): string[] {
  const here = new Set(present)
  const seats = [...places]
  const left = (identity: string | undefined) => identity !== undefined && !here.has(identity)
  for (let place = 0; place < seats.length; place++) {
    if (!left(seats[place])) continue
    while (seats.length > place + 1 && left(seats.at(-1))) seats.pop()
    const last = seats.pop()
    if (last !== undefined && place < seats.length) seats[place] = last
  }
  const seated = new Set(seats)
  return [...seats, ...present.filter((identity) => !seated.has(identity))]
}
