/** The call: its own chunk, fetched while the lobby is read. */
export { default as Call } from './Call.svelte'
export { Session } from './session.svelte'
