"""One of several consumers: `python -m tests.scale.consumer URL` says `ready`, then the keys of each batch that it
acknowledged.

Once its input is closed it ends where nothing is left.
"""

import sys
import threading

from agentworld.pool import open_store
from agentworld.records import BatchSpec

SPEC = BatchSpec(method="reinforce", size=4, min_size=1, lease_seconds=60.0)


def main(url):
    pool, last_look = open_store(url), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), last_look.set()), daemon=True).start()
    print("ready", flush=True)
    while True:
        ending = last_look.is_set()
        batch = pool.lease(SPEC, "trainer")
        if batch is not None:
            pool.ack(batch.batch_id, batch.epoch)
            print(*(item.key for item in batch.items), flush=True)
        elif ending:
            break
        else:
            last_look.wait(0.05)
    pool.close()


if __name__ == "__main__":
    main(sys.argv[1])
