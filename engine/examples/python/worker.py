#!/usr/bin/env python3
"""A worker for Countwheel's queue on Redis Streams, with redis-py and the standard library.

    pip install redis
    python worker.py --redis redis://127.0.0.1 --engine http://127.0.0.1:7171 --queue billing

Put your work into `handle`. It is called with a Run, in one of several threads, and

- returns None, or a text that says where the result is: the occurrence has succeeded;
- raises Permanent: trying again is of no use;
- raises anything else: another attempt may follow, as the schedule's retry policy says.

Delivery is at least once: make the work idempotent by `run.occurrence_id`. While it works long, it should look at
`run.stop` now and then: it is set when the schedule was deleted or the lease is lost.

The protocol that this follows is docs/REDIS.md. Nothing here reads the wall clock.
"""

import argparse
import json
import os
import random
import secrets
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


@dataclass
class Run:
    occurrence_id: str
    schedule_id: str
    version: int
    kind: int  # 0 regular, 1 manual, 2 backfill
    scheduled_for_ms: int
    available_at_ms: int
    attempt: int
    tenant: str
    payload: bytes
    lease_token: str = ""
    stop: threading.Event = field(default_factory=threading.Event)


class Permanent(Exception):
    """Trying again is of no use."""


def handle(run):
    """The work. This one only says what it was given."""
    # One write a line: several threads say something.
    sys.stdout.write(f"done {run.occurrence_id} attempt {run.attempt}: {run.payload.decode()}\n")
    sys.stdout.flush()


LANES = ("strict", "flexible", "catchup")


class NoAnswer(Exception):
    """Nothing came back, or nothing that is surely the engine's: nothing is settled by it."""


class Engine:
    def __init__(self, url, token):
        self.url, self.token = url.rstrip("/"), token

    def ask(self, path, body=None, timeout=10):
        """Status and body of an answer that is the engine's; anything else is NoAnswer."""
        request = urllib.request.Request(self.url + path, data=None if body is None else json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            try:
                text = json.load(error)["error"]
                code, message = text["code"], text["message"]
            except (ValueError, KeyError, TypeError, OSError):
                raise NoAnswer(f"{error.code} without the engine's reason") from error
            # A path that the server does not know says nothing about an occurrence.
            if error.code in (404, 409) and "at this path" not in message:
                return error.code, code
            raise NoAnswer(f"{error.code}: {message}") from error
        except (OSError, ValueError) as error:
            raise NoAnswer(str(error)) from error


class Worker:
    def __init__(self, options):
        self.options = options
        self.engine = Engine(options.engine, options.token)
        # BLOCK below the client's own time-out; and no client that repeats commands by itself, so that we know when an
        # answer was lost.
        self.redis = redis.Redis.from_url(
            options.redis, socket_timeout=5, socket_connect_timeout=2, protocol=2, retry=Retry(NoBackoff(), 0))
        # Unique for each start: nobody else may read what is pending under it.
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"
        self.group = options.group
        self.streams = []
        self.stopping = threading.Event()
        self.ended = threading.Event()
        self.leases = {}  # token -> Run
        self.in_hand = set()  # (key, id) that were read and are not settled
        self.lock = threading.Lock()
        self.free = threading.Semaphore(options.threads)
        self.pool = ThreadPoolExecutor(options.threads)

    # reading

    def run(self):
        threading.Thread(target=self.keep_leases, daemon=True).start()
        wait, connected, recover_at = 0.1, False, 0.0
        while not self.stopping.is_set():
            try:
                if not connected:
                    self.connect()
                    connected = True
                if time.monotonic() >= recover_at:
                    self.recover()
                    recover_at = time.monotonic() + self.options.recover_ms / 4000
                self.read()
                wait = 0.1
            except (redis.RedisError, NoAnswer) as error:
                # NOGROUP and UNBLOCKED too: a stream has gone, and its group is made again at 0.
                print(f"nothing can be read: {error}", file=sys.stderr)
                connected = False
                self.redis.connection_pool.disconnect()
                self.stopping.wait(random.uniform(0.1, wait))
                wait = min(2 * wait, 5)
        self.pool.shutdown(wait=True)
        self.ended.set()
        self.leave()

    def connect(self):
        shards = self.engine.ask("/healthz")[1]["shards"]
        lanes = [[f"{self.options.prefix}:{{{self.options.queue}.{shard}}}:{lane}" for shard in range(shards)]
                 for lane in LANES]
        self.streams = lanes
        for key in sum(lanes, []):
            try:
                self.redis.xgroup_create(key, self.group, id="0", mkstream=True)
            except redis.ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise
        # What we were given and did not finish: an answer that was lost on the way may have brought entries.
        for key in sum(lanes, []):
            last = "0"
            while found := self.redis.xreadgroup(self.group, self.name, {key: last}, count=100):
                entries = found[0][1]
                if not entries:
                    break
                last = entries[-1][0]
                self.accept(key, entries)

    def read(self):
        """Waits for a free thread, then reads one entry: each tenth turn begins with another lane."""
        if not self.free.acquire(timeout=0.2):
            return
        self.free.release()
        order = random.choices([[0, 1, 2], [1, 0, 2], [2, 0, 1]], weights=[8, 1, 1])[0]
        for lane in order:
            keys = self.streams[lane]
            start = random.randrange(len(keys))
            for key in keys[start:] + keys[:start]:
                found = self.redis.xreadgroup(self.group, self.name, {key: ">"}, count=1)
                if found:
                    return self.accept(key, found[0][1])
        everything = {key: ">" for key in sum(self.streams, [])}
        for key, entries in self.redis.xreadgroup(self.group, self.name, everything, count=1, block=1000):
            self.accept(key.decode(), entries)

    def recover(self):
        """Takes over what a consumer was given long ago and did not settle."""
        for key in sum(self.streams, []):
            cursor = "0-0"
            while True:
                cursor, entries, *_ = self.redis.xautoclaim(
                    key, self.group, self.name, self.options.recover_ms, cursor, count=10)
                self.accept(key, entries)
                if cursor in (b"0-0", "0-0"):
                    break

    def accept(self, key, entries):
        for entry, fields in entries:
            place = (key, entry)
            with self.lock:
                if place in self.in_hand:
                    continue
            if not fields:  # somebody removed it: the engine sends again what still has to run
                self.redis.xack(key, self.group, entry)
                continue
            try:
                run = self.parse(fields)
            except (KeyError, ValueError) as error:
                print(f"an entry is not understood and stays pending: {error}", file=sys.stderr)
                continue
            with self.lock:
                self.in_hand.add(place)
            self.free.acquire()
            self.pool.submit(self.process, place, run)

    @staticmethod
    def parse(fields):
        layout, schedule, version, kind, scheduled, available, attempt, tenant = fields[b"meta"].decode().split(" ")
        if layout != "1":
            raise ValueError(f"layout {layout}")
        return Run(fields[b"occurrence_id"].decode(), schedule, int(version), int(kind), int(scheduled),
                   int(available), int(attempt), tenant, fields[b"payload"])

    # one entry

    def process(self, place, run):
        try:
            if self.claim(place, run):
                self.attempt(run)
        except Exception as error:  # a thread of the pool must not die silently
            print(f"{run.occurrence_id}: {error!r}", file=sys.stderr)
        finally:
            with self.lock:
                self.in_hand.discard(place)
            self.free.release()

    def claim(self, place, run):
        """Whether it was granted. The entry is acknowledged after an answer that settles it, and only then."""
        body = {"worker": self.name, "lease_ms": self.options.lease_ms, "schedule_id": run.schedule_id}
        until, wait = time.monotonic() + self.options.recover_ms / 1000, 0.1
        while not self.stopping.is_set():
            try:
                status, answer = self.engine.ask(f"/v1/occurrences/{run.occurrence_id}/claim", body)
            except NoAnswer as error:
                pause = random.uniform(0.1, wait)
                if time.monotonic() + pause >= until:
                    print(f"{run.occurrence_id} stays pending: {error}", file=sys.stderr)
                    return False
                self.stopping.wait(pause)
                wait = min(2 * wait, 5)
                continue
            if status == 200:
                run.attempt, run.lease_token = answer["attempt"], answer["lease_token"]
                with self.lock:
                    self.leases[run.lease_token] = run
            try:
                self.redis.xack(place[0], self.group, place[1])
            except redis.RedisError:
                pass  # it comes again, and the engine says then that it is settled
            return status == 200
        return False

    def attempt(self, run):
        body = {"occurrence_id": run.occurrence_id, "lease_token": run.lease_token}
        try:
            result = handle(run)
            path, said = "/v1/runs/complete", {} if result is None else {"result_ref": str(result)[:1024]}
        except Permanent as error:
            path, said = "/v1/runs/fail", {"class": "permanent", "message": str(error)[:1024]}
        except Exception as error:
            path, said = "/v1/runs/fail", {"class": "transient", "message": repr(error)[:1024]}
        wait = 0.1
        while not self.ended.is_set():
            try:
                status, _ = self.engine.ask(path, body | said)
                if status != 200:
                    print(f"{run.occurrence_id}: the lease was over", file=sys.stderr)
                break
            except NoAnswer as error:  # heartbeats go on meanwhile
                print(f"{run.occurrence_id}: its end was not heard: {error}", file=sys.stderr)
                time.sleep(random.uniform(0.1, wait))
                wait = min(2 * wait, 5)
        with self.lock:
            self.leases.pop(run.lease_token, None)

    def keep_leases(self):
        lease_ms = self.options.lease_ms
        while not self.ended.wait(lease_ms / 3000):
            with self.lock:
                runs = list(self.leases.values())[:1000]
            if not runs:
                continue
            asked = [{"occurrence_id": run.occurrence_id, "lease_token": run.lease_token, "lease_ms": lease_ms}
                     for run in runs]
            try:
                results = self.engine.ask("/v1/runs/heartbeat", {"runs": asked}, timeout=lease_ms / 3000)[1]["results"]
            except (NoAnswer, KeyError, TypeError) as error:
                print(f"no heartbeat: {error}", file=sys.stderr)
                continue
            for run, result in zip(runs, results):
                if result.get("cancel_requested") or "error" in result:
                    run.stop.set()

    def leave(self):
        """Removes our name, unless entries are pending under it: they would be gone with it."""
        for key in sum(self.streams, []):
            try:
                if not self.redis.xpending_range(key, self.group, "-", "+", 1, self.name):
                    self.redis.xgroup_delconsumer(key, self.group, self.name)
            except redis.RedisError:
                pass


def main():
    parser = argparse.ArgumentParser(description="a worker for Countwheel's queue on Redis Streams")
    parser.add_argument("--redis", default="redis://127.0.0.1")
    parser.add_argument("--engine", default="http://127.0.0.1:7171")
    parser.add_argument("--queue", required=True)
    parser.add_argument("--prefix", default="cw")
    parser.add_argument("--group", default="workers")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--lease-ms", type=int, default=60_000)
    parser.add_argument("--recover-ms", type=int, default=60_000)
    parser.add_argument("--token", default=os.environ.get("COUNTWHEEL_TOKEN"))
    worker = Worker(parser.parse_args())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: worker.stopping.set())
    worker.run()


if __name__ == "__main__":
    main()
