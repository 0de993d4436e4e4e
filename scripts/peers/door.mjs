// WHIP and WHEP by hand: an offer in, an answer out, and the end.

/** Posts an offer; gives the answer and how to leave. */
export async function enter(url, offer) {
  const response = await fetch(url, { method: 'POST', headers: { 'Content-Type': 'application/sdp' }, body: offer })
  const body = await response.text()
  if (response.status !== 201) throw new Error(`${url}: ${response.status} ${body}`)
  const transport = new URL(response.headers.get('Location'), url)
  const leave = async () => {
    const { status } = await fetch(transport, { method: 'DELETE' })
    if (status !== 200) throw new Error(`DELETE ${transport}: ${status}`)
  }
  return { answer: body, leave }
}
