#!/usr/bin/env python3
"""Publishes a tone and a moving bar by WHIP and plays them by WHEP, both with aiortc; judges what came out.

    whip_whep.py URL [--seconds 10] [--room NAME] [--token JWT]

The last line printed says what arrived. Exit code 0 if it is what was sent, 1 if not. aiortc shares no code with the
server: what both misunderstand in the same way is all that this cannot see.
"""

import argparse
import asyncio
import statistics
import sys
import urllib.error
import urllib.parse
import urllib.request

import av
import numpy as np
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, VideoStreamTrack

TONE_HZ = 440
WIDTH_PX, HEIGHT_PX, BAR_PX = 640, 360, 64


class Tone(AudioStreamTrack):
    """A sine, continuous over frames."""

    async def recv(self):
        frame = await super().recv()
        at_s = (frame.pts + np.arange(frame.samples)) / frame.sample_rate
        samples = (0.4 * 32767 * np.sin(2 * np.pi * TONE_HZ * at_s)).astype(np.int16)
        out = av.AudioFrame.from_ndarray(samples[np.newaxis], format="s16", layout="mono")
        out.pts, out.sample_rate, out.time_base = frame.pts, frame.sample_rate, frame.time_base
        return out


class Bar(VideoStreamTrack):
    """A white bar that moves by 8 pixels a frame over black."""

    count = 0

    async def recv(self):
        pts, time_base = await self.next_timestamp()
        picture = np.zeros((HEIGHT_PX, WIDTH_PX, 3), np.uint8)
        left = 8 * self.count % (WIDTH_PX - BAR_PX)
        picture[:, left : left + BAR_PX] = 255
        self.count += 1
        out = av.VideoFrame.from_ndarray(picture, format="rgb24")
        out.pts, out.time_base = pts, time_base
        return out


class Seen:
    """What a viewer got."""

    def __init__(self):
        self.audio_frames = self.video_frames = 0
        self.tones_hz, self.bars_px = [], []

    def hear(self, frame):
        self.audio_frames += 1
        if self.audio_frames % 25:
            return
        samples = frame.to_ndarray().reshape(-1, len(frame.layout.channels))[:, 0].astype(float)
        if np.abs(samples).max() > 500:
            spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 1 << 14))
            self.tones_hz.append(float(spectrum.argmax()) * frame.sample_rate / (1 << 14))

    def see(self, frame):
        self.video_frames += 1
        if self.video_frames % 5:
            return
        columns = frame.to_ndarray(format="gray").mean(axis=0)
        if columns.max() > 150 and columns.min() < 60:
            self.bars_px.append(int(columns.argmax()))

    def faults(self, seconds):
        """Sentences on what is not as it was sent."""
        found = []
        if self.audio_frames < 40 * seconds:
            found.append(f"only {self.audio_frames} audio frames in {seconds:g} s, 50/s were sent")
        if self.video_frames < 15 * seconds:
            found.append(f"only {self.video_frames} pictures in {seconds:g} s, 30/s were sent")
        if not self.tones_hz or abs(statistics.median(self.tones_hz) - TONE_HZ) > 10:
            found.append(f"the tone is {self.tones_hz[-3:]} Hz, not {TONE_HZ}")
        if len(set(self.bars_px)) < 3:
            found.append(f"the bar does not move: it was seen at {sorted(set(self.bars_px))}")
        return found


def request(method, url, token, body=None):
    """Status, headers and text of an HTTP answer, whatever its status."""
    headers = {"Content-Type": "application/sdp"} if body else {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    asked = urllib.request.Request(url, body.encode() if body else None, headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.headers, refused.read().decode()


async def join(connection, url, token):
    """Offers, takes the answer, and gives the address of the resource."""
    await connection.setLocalDescription(await connection.createOffer())
    offer = connection.localDescription.sdp
    status, headers, answer = await asyncio.to_thread(request, "POST", url, token, offer)
    if status != 201:
        raise SystemExit(f"{url} answered {status}: {answer}")
    await connection.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    return urllib.parse.urljoin(url, headers["Location"])


def play_into(connection, seen):
    """Feeds every track that arrives to `seen`; the tasks, so that nobody collects them."""
    tasks = []

    @connection.on("track")
    def begin(track):
        async def pull():
            while True:
                frame = await track.recv()
                (seen.hear if track.kind == "audio" else seen.see)(frame)

        tasks.append(asyncio.ensure_future(pull()))

    return tasks


async def until(holds, seconds):
    """Waits until `holds()` is true, at most `seconds`."""
    end = asyncio.get_running_loop().time() + seconds
    while not holds() and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.05)


async def run(options):
    # No STUN server: everything is on this machine.
    publisher = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    viewer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    base, room = options.url.rstrip("/"), options.room
    publisher.addTrack(Tone())
    publisher.addTrack(Bar())
    published = await join(publisher, f"{base}/whip/{room}/aiortc", options.token)
    seen = Seen()
    tasks = play_into(viewer, seen)
    for kind in ("audio", "video"):
        viewer.addTransceiver(kind, direction="recvonly")
    played = await join(viewer, f"{base}/whep/{room}", options.token)
    await until(lambda: seen.audio_frames and seen.video_frames, 15)
    await asyncio.sleep(options.seconds)
    faults = seen.faults(options.seconds)
    for address in (played, published):
        status, _, body = await asyncio.to_thread(request, "DELETE", address, options.token)
        if status not in (200, 204):
            faults.append(f"DELETE {address} answered {status}: {body}")
    for task in tasks:
        task.cancel()
    await viewer.close()
    await publisher.close()
    return seen, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="such as http://127.0.0.1:7880")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--room", default="aiortc")
    parser.add_argument("--token", help="access token; with --dev the server asks for none")
    options = parser.parse_args()
    seen, faults = asyncio.run(run(options))
    for fault in faults:
        print(fault, file=sys.stderr)
    tone = f"{statistics.median(seen.tones_hz):.0f} Hz" if seen.tones_hz else "none"
    places = len(set(seen.bars_px))
    print(f"{seen.audio_frames} audio frames, tone {tone}; {seen.video_frames} pictures, bar at {places} places")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
