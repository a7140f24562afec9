"""The explorer's server in a thread, for tests."""

import contextlib
import threading
import time

from unweave.explore import ExploreConfig

SETTINGS = ExploreConfig(map="pca", max_upload_mb=1, max_pixels=1_000_000)


@contextlib.contextmanager
def running(app):
    """The address of an application that is served by a thread."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
