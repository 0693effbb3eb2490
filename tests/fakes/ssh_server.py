"""A machine reached by the real ssh client: an SSH server inside the tests, on 127.0.0.1, with throw-away keys.

Commands run for real, as sshd runs them (`sh -c TEXT`), behind a prefix where one is given, so that they can run inside
a private systemd. In front of it stands a gate on which the network's failures are made: connections dropped in an
instant, silence (half-open connections, a machine that never answers), refusal, and everything working again.

    with ssh_server(tmp_path) as server:
        host = SshHost(server.alias, ssh_config=server.config)
"""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

T = TypeVar("T")

_PIECE = 65536


class SshServer:
    """The server and its gate, in a thread with a loop of its own. Methods are called from the test's thread.

    Attributes:
        alias: what `ssh -F config` calls it.
        config: the client's configuration: the alias, and `stranger-ALIAS`, whose host key is not known,
            `changed-ALIAS`, whose host key is another than the known one, and `keyless-ALIAS`, with a key that the
            server does not accept.
        port: where it listens.
        accepted: connections so far.
        commands: texts that were asked for so far.
    """

    def __init__(self, folder: Path, prefix: Sequence[str] = (), shell: Sequence[str] = ("/bin/sh", "-c")) -> None:
        self.alias = "machine"
        self.config = folder / "ssh_config"
        self.port = 0
        self.accepted = 0
        self.commands: list[str] = []
        self._folder = folder
        self._before = (*prefix, *shell)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open = asyncio.Event()
        self._behind: asyncssh.SSHAcceptor | None = None
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._sockets: set[socket.socket] = set()
        self._running: set[int] = set()

    def start(self) -> None:
        """Make the keys and the client's configuration, and listen."""
        self._thread.start()
        keys = {name: asyncssh.generate_private_key("ssh-ed25519") for name in ("host", "client", "other")}
        self._await(self._begin(keys["host"], keys["client"]))
        for name in ("client", "other"):
            path = self._folder / f"{name}_key"
            path.write_bytes(keys[name].export_private_key())
            path.chmod(0o600)
        for name, key in (("known", "host"), ("changed", "other")):
            public = keys[key].export_public_key().decode().strip()
            (self._folder / f"{name}_hosts").write_text(f"[127.0.0.1]:{self.port} {public}\n", encoding="ascii")
        self.config.write_text(
            self._entry(self.alias, "client_key", "known_hosts")
            + self._entry(f"stranger-{self.alias}", "client_key", "no_hosts")
            + self._entry(f"changed-{self.alias}", "client_key", "changed_hosts")
            + self._entry(f"keyless-{self.alias}", "other_key", "known_hosts"),
            encoding="utf-8",
        )

    def close(self) -> None:
        """End everything: connections, commands that are still running, the thread."""
        self._await(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def drop(self) -> int:
        """Cut every connection at once, as when a network goes away with a reset. Returns how many there were."""
        return self._await(self._drop())

    def stall(self) -> None:
        """Fall silent: bytes of open connections stay where they are, new ones get no answer."""
        self._await(self._set_open(is_open=False))

    def refuse(self) -> None:
        """Refuse new connections; those there are stay."""
        self._await(self._shut())

    def come_back(self) -> None:
        """Work again: accept connections, move bytes."""
        self._await(self._set_open(is_open=True))

    def running(self) -> int:
        """Return how many commands run now."""
        return len(self._running)

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    def _entry(self, alias: str, key: str, hosts: str) -> str:
        lines = (
            f"Host {alias}",
            "HostName 127.0.0.1",
            f"Port {self.port}",
            "User tester",
            f"IdentityFile {self._folder / key}",
            "IdentitiesOnly yes",
            "IdentityAgent none",
            f"UserKnownHostsFile {self._folder / hosts}",
            "GlobalKnownHostsFile /dev/null",
        )
        return "\n  ".join(lines) + "\n"

    async def _begin(self, host_key: asyncssh.SSHKey, client_key: asyncssh.SSHKey) -> None:
        accepted = asyncssh.import_authorized_keys(client_key.export_public_key().decode())
        self._behind = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host_key],
            authorized_client_keys=accepted,
            process_factory=self._serve,
            encoding=None,
            line_editor=False,
        )
        await self._set_open(is_open=True)

    async def _end(self) -> None:
        await self._shut()
        await self._drop()
        self._open.set()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        for pid in list(self._running):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        assert self._behind is not None
        self._behind.close()
        await self._behind.wait_closed()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        _, late = await asyncio.wait(others, timeout=5) if others else (set(), set())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _set_open(self, *, is_open: bool) -> None:
        if is_open:
            self._open.set()
        else:
            self._open.clear()
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
            self._listener.settimeout(0)
            self.port = int(self._listener.getsockname()[1])
            self._accepting = asyncio.create_task(self._accept(self._listener))

    async def _shut(self) -> None:
        if self._accepting is not None and self._listener is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._listener.close()
        self._accepting = self._listener = None

    async def _drop(self) -> int:
        sockets = list(self._sockets)
        for one in sockets:
            # Closed with nothing to linger for, TCP sends a reset.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            client, _ = await self._loop.sock_accept(listener)
            client.settimeout(0)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.accepted += 1
            task = asyncio.create_task(self._connect(client))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _connect(self, client: socket.socket) -> None:
        assert self._behind is not None
        self._sockets.add(client)
        with client, socket.socket() as server:
            try:
                server.settimeout(0)
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._loop.sock_connect(server, ("127.0.0.1", self._behind.get_port()))
                both = [asyncio.create_task(self._move(*way)) for way in ((client, server), (server, client))]
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in both:
                        task.cancel()
                    await asyncio.gather(*both, return_exceptions=True)
            finally:
                self._sockets.discard(client)

    async def _move(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                await self._open.wait()
                piece = await self._loop.sock_recv(source, _PIECE)
                await self._open.wait()
                if not piece:
                    return
                await self._loop.sock_sendall(target, piece)

    async def _serve(self, session: "asyncssh.SSHServerProcess[bytes]") -> None:
        text = session.command or ""
        self.commands.append(text)
        child = await asyncio.create_subprocess_exec(
            *self._before,
            text,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._running.add(child.pid)
        feeding = asyncio.create_task(_feed(session, child.stdin))
        try:
            await asyncio.gather(
                _drain(child.stdout, session.stdout.write, session.stdout.drain),
                _drain(child.stderr, session.stderr.write, session.stderr.drain),
            )
            code = await child.wait()
        finally:
            self._running.discard(child.pid)
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        with contextlib.suppress(asyncssh.Error, OSError):
            if code < 0:
                session.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
            else:
                session.exit(code)


async def _feed(session: "asyncssh.SSHServerProcess[bytes]", pipe: asyncio.StreamWriter) -> None:
    """Pass on what the client sends until it ends, or the connection does."""
    with contextlib.suppress(asyncssh.Error, OSError):
        while piece := await session.stdin.read(_PIECE):
            pipe.write(piece)
            await pipe.drain()
    pipe.close()


async def _drain(
    pipe: asyncio.StreamReader, write: Callable[[bytes], None], drain: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Pass on what a command prints; with nobody to take it, read on, so that the command is not held up."""
    gone = False
    while piece := await pipe.read(_PIECE):
        if not gone:
            try:
                write(piece)
                await drain()
            except (asyncssh.Error, OSError):
                gone = True


@contextmanager
def ssh_server(
    folder: Path, prefix: Sequence[str] = (), shell: Sequence[str] = ("/bin/sh", "-c")
) -> Iterator[SshServer]:
    """Run a server; its keys and the client's configuration are put into `folder`.

    Args:
        folder: an empty folder of the test.
        prefix: words before every command's shell, such as `nsenter …`.
        shell: the login shell, up to where the text of a command comes.
    """
    server = SshServer(folder, prefix, shell)
    server.start()
    try:
        yield server
    finally:
        server.close()
