"""A program of the documented scheme on redis-py: no Quaymaster in it.

One JSON command a line on standard input, one JSON answer a line on standard output.
"""

import base64
import json
import sys

import redis
import zstandard

PREFIX = "Z:"
THRESHOLD = 1024


def compress(text):
    data = text.encode("utf-8")
    if len(data) <= THRESHOLD:
        return text
    return PREFIX + base64.b64encode(zstandard.ZstdCompressor().compress(data)).decode("ascii")


def decompress(item):
    if not item.startswith(PREFIX):
        return item
    return zstandard.ZstdDecompressor().decompress(base64.b64decode(item[len(PREFIX) :])).decode("utf-8")


def answer(client, ask):
    verb, queue = ask["do"], ask["queue"]
    if verb == "push":
        return {"length": client.rpush(queue, *[compress(json.dumps(job)) for job in ask["jobs"]])}
    if verb == "raw":
        return {"length": client.rpush(queue, *ask["items"])}
    if verb == "pop":
        popped = client.blpop([queue], timeout=ask["timeout"])
        if popped is None:
            return {"job": None}
        return {"job": json.loads(decompress(popped[1])), "compressed": popped[1].startswith(PREFIX)}
    if verb == "range":
        return {"items": [json.loads(decompress(item)) for item in client.lrange(queue, 0, -1)]}
    if verb == "zadd":
        return {"added": client.zadd(queue, ask["members"])}
    if verb == "zpopmax":
        return {"members": client.zpopmax(queue, ask["count"])}
    if verb == "bomb":
        squeezed = zstandard.ZstdCompressor().compress(b"[" + b" " * (ask["bytes"] - 2) + b"]")
        item = PREFIX + base64.b64encode(squeezed).decode("ascii")
        client.rpush(queue, item)
        return {"item_bytes": len(item), "grown": len(decompress(item))}
    raise ValueError(verb)


def main():
    client = redis.Redis.from_url(sys.argv[1], decode_responses=True)
    for line in sys.stdin:
        print(json.dumps(answer(client, json.loads(line))), flush=True)


main()
