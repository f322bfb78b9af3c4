"""Programs that run inside a node: `python -m timebound.node broker --bind ADDRESS --port PORT`."""

import argparse
import json
import sys

from timebound import _core


def main() -> int:
    """The embedded MQTT broker, until SIGTERM."""
    parser = argparse.ArgumentParser(prog="timebound.node")
    parser.add_argument("role", choices=["broker"])
    parser.add_argument("--bind", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    arguments = parser.parse_args()
    # Anonymous clients are welcome: the broker's network is the run's own and has no way out.
    return _core.broker(json.dumps({"bind": arguments.bind, "port": arguments.port, "allow_anonymous": True}))


if __name__ == "__main__":
    sys.exit(main())
