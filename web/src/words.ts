/** Every word the pages say. Tests import this file, so a sentence changes in one place. */

/** What a button beside a sentence says. */
export const actions = {
  tryAgain: 'Try again',
  tryNow: 'Try now',
  joinWithout: 'Join without',
  chooseMicrophone: 'Choose microphone',
  turnOnSound: 'Turn on sound',
  copyLink: 'Copy link',
  stopVideo: 'Stop my video',
  leave: 'Leave',
  useThisTab: 'Use this tab',
  startPage: 'Start page',
  joinAgain: 'Join again',
} as const

export type Action = keyof typeof actions

/** A sentence, what can be done about it, and what a support question needs. */
export interface Said {
  text: string
  actions: Action[]
  /** Stable code of the server's answer. */
  code?: string
  /** Trace id of the answer, where the server sent one. */
  trace?: string
}

export const words = {
  product: 'Rondo',
  tagline: 'Join a room with sound and picture.',
  copied: 'Copied.',
  copy: 'Copy',
  close: 'Close',

  theme: { label: 'Theme', system: 'System', light: 'Light', dark: 'Dark' },

  lobby: {
    skip: 'Skip to the form',
    name: 'Your name',
    room: 'Room',
    microphone: 'Microphone',
    camera: 'Camera',
    speakers: 'Speakers',
    systemDefault: 'System default',
    test: 'Test',
    testLabel: 'Test speakers',
    join: 'Join',
    joining: (room: string) => `Joining ${room}…`,
    devices: 'Devices',
    preview: 'Your camera, mirrored',
    level: 'Microphone level',
    cameraOff: 'Camera is off',
    hearYou: 'We hear you.',
    peopleIn: (count: number) =>
      count === 0 ? 'Nobody is in yet.' : count === 1 ? '1 person is in.' : `${count} people are in.`,
    needName: 'Type your name.',
    needRoom: 'Type the name of a room.',
    badRoom: 'A room name has 1 to 128 letters, digits or . _ ~ @ : -',
  },

  devices: {
    asking: 'Your browser asks for the camera and microphone. Choose Allow.',
    blocked:
      'Camera and microphone are blocked. Allow them in the site settings beside the address, then try again. You can also join without them.',
    cameraBlocked:
      'The camera is blocked. Allow it in the site settings beside the address, then try again. You can also join without it.',
    microphoneBlocked:
      'The microphone is blocked. Allow it in the site settings beside the address, then try again. You can also join without it.',
    systemBlocked: (device: 'camera' | 'microphone') =>
      `Your system keeps this browser from the ${device}. Allow it in the privacy settings.`,
    noCamera: 'No camera found. You can join with sound.',
    noMicrophone: 'No microphone found. You can join and listen.',
    busy: (device: 'camera' | 'microphone') => `Another app is using the ${device}. Close it and try again.`,
    unpluggedNow: (gone: string, now: string) => `${gone} was unplugged. Now using ${now}.`,
    unpluggedSilent: (gone: string) => `${gone} was unplugged. Others cannot hear you.`,
    unpluggedCamera: (gone: string) => `${gone} was unplugged. Others cannot see you.`,
    silent: (mic: string) => `We hear nothing from ${mic}. Is it muted on the device?`,
    muteMicrophone: 'Mute microphone',
    unmuteMicrophone: 'Unmute microphone',
    stopVideo: 'Stop my video',
    startVideo: 'Start my video',
    micOn: 'Your microphone is on.',
    micOff: 'Your microphone is muted.',
    camOn: 'Your camera is on.',
    camOff: 'Your camera is off.',
  },

  call: {
    skip: 'Skip to the controls',
    stage: 'People',
    controls: 'Controls',
    status: 'Call',
    you: 'You',
    joining: (room: string) => `Joining ${room}…`,
    stillJoining: 'Still joining: opening the media path.',
    connected: 'Connected',
    alone: 'Only you are here.',
    muted: 'You are muted. Press M, or hold Space to talk.',
    heldBack: 'Your browser holds back the sound.',
    uploadWeak: 'Your upload is weak. Others may see you blurred.',
    downloadWeak: 'Your download is weak.',
    controlLost: 'Sound and picture go on. Buttons may be slow for a moment.',
    reconnecting: (seconds: number) => `Reconnecting… ${seconds} s`,
    connectedAgain: (seconds: number) => `Connected again after ${seconds} s.`,
    reconnectFailed: (seconds: number) => `We could not reconnect for ${seconds} s.`,
    joinTimeout: 'No media path to the server opened within 15 s.',
    leaveCall: 'Leave call',
    people: 'People',
    statistics: 'Statistics',
    devices: 'Devices',
    help: 'Keyboard help',
    more: 'More',
    left: (room: string) => `You left ${room}.`,
    moreThanFit: (people: number) =>
      people === 1 ? '1 more person is here than this page shows.' : `${people} more people are here than this page shows.`,
    unheard: (people: number) =>
      people === 1
        ? '1 person is not heard: too many microphones are on.'
        : `${people} people are not heard: too many microphones are on.`,
    codecUnsupported: (name: string) => `This browser cannot show ${name}'s video. You hear the sound.`,
    joined: (names: string) => `${names} joined.`,
    goneNames: (names: string) => `${names} left.`,
    pinned: (name: string) => `${name} is pinned.`,
    unpinned: 'Nobody is pinned.',
    watchNothing: (room: string) => `Nothing is on air in ${room} yet. This page starts by itself.`,
  },

  share: {
    start: 'Share your screen',
    stop: 'Stop sharing your screen',
    on: 'You share your screen.',
    off: 'You stopped sharing your screen.',
    hostsOnly: 'Only hosts may share here.',
    system: 'Your system keeps this browser from recording the screen.',
    theirs: (name: string) => `${name}'s screen`,
    yours: 'Your screen',
    began: (name: string) => `${name} shares the screen.`,
    ended: (name: string) => `${name} stopped sharing the screen.`,
    stoppedBy: (by: string) => `${by} stopped your screen.`,
    stoppedByServer: 'Your screen was stopped.',
  },

  pages: {
    label: 'Pages of people',
    previous: 'Previous page',
    next: 'Next page',
    of: (page: number, pages: number) => `Page ${page} of ${pages}`,
  },

  tile: {
    muted: 'muted',
    fair: 'fair connection',
    weak: 'weak connection',
    noData: 'no data',
    away: 'reconnecting',
    pinned: 'pinned',
    speaking: 'speaking',
  },

  /** Whose side a connection suffers on, and what from. `whose`: `Ann's` or `Your`. */
  network: {
    theirs: (name: string) => `${name}'s`,
    yours: 'Your',
    upload: {
      loss: (whose: string) => `${whose} upload loses packets`,
      delay: (whose: string) => `${whose} network is slow`,
      silence: (whose: string) => `${whose} network is silent`,
    },
    download: {
      loss: (whose: string) => `${whose} download loses packets`,
      delay: (whose: string) => `${whose} network is slow`,
      silence: (whose: string) => `${whose} network is silent`,
      layer: (whose: string) => `${whose} download is thin`,
    },
    weak: (whose: string) => `${whose} connection is weak`,
  },

  byOthers: {
    mutedSoft: (by: string) => `${by} muted you. Press M to unmute.`,
    mutedByServer: 'You were muted. Press M to unmute.',
    removed: (by: string | null) => (by ? `${by} removed you from this room.` : 'You were removed from this room.'),
    elsewhere: 'You joined from another place, so this tab left.',
    closed: (by: string | null, at: string) =>
      by ? `${by} ended this call at ${at}.` : `This call ended at ${at}.`,
    moving: 'This call is moving to another server. Sound may stop for a few seconds.',
    host: (name: string) => `${name} (host)`,
  },

  refused: {
    roomFull: (of: string | null) => (of ? `This room is full (${of}).` : 'This room is full.'),
    serverFull: (seconds: number) => `The server is full. Next try in ${seconds} s.`,
    serverBusy: (seconds: number) => `The server is busy. Next try in ${seconds} s.`,
    draining: 'The server is shutting down and takes nobody new. Try again in a minute.',
    expired: 'This link has expired. Ask for a new one.',
    wrong: (room: string) => `This link does not open ${room}. Ask for a new one.`,
    needHttps: (host: string) => `Calls need https. Open https://${host}`,
    cannotCall: 'This browser cannot make calls. Use a current Chrome, Edge, Firefox or Safari.',
    unreachable: 'We could not reach the server.',
    other: (status: number, code: string) => `The server answered ${status} (${code}).`,
  },

  statistics: {
    good: 'Your connection is good.',
    fair: 'Your connection is fair.',
    poor: 'Your connection is poor.',
    none: 'No report yet.',
    sent: 'sent',
    canSend: 'could send',
    got: 'got',
    canGet: 'could get',
    lost: 'lost',
    lostUp: 'lost of what you send',
    lostDown: 'lost of what you get',
    minute: (top: string) => `60 s, 0 to ${top}`,
    roundTrip: 'there and back',
    path: 'path',
    copyReport: 'Copy report',
  },

  help: {
    title: 'Keyboard',
    singleKeys: 'Single-key shortcuts',
    keys: [
      ['M', 'Mute or unmute the microphone'],
      ['V', 'Stop or start the video'],
      ['Hold Space', 'Talk while muted'],
      ['S', 'Share or stop sharing the screen'],
      ['P', 'People'],
      ['I', 'Statistics'],
      ['Arrow keys', 'Move between tiles'],
      ['Enter', 'Pin a tile'],
      ['PageUp, PageDown', 'Previous or next page of people'],
      ['F6', 'Next region'],
      ['Esc', 'Close what is on top'],
      ['?', 'This help'],
    ],
  },
} as const
