/** For tests in a browser, and for a look from the console: the connections of the call that this page is in. */
declare var rondo: { transports: { publish: RTCPeerConnection | null; play: RTCPeerConnection; screen: RTCPeerConnection | null } } | undefined
