"""A file from its address; an attempt that was cut is resumed."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from tqdm import tqdm

from core.files import PARTIAL, InputError, explain_error, put_in_place

LARGEST = 2 << 30  # bytes that one address may send
TIMEOUT, TRIES, PAUSE = 30.0, 3, 2.0  # seconds for an answer, attempts, seconds between them


class Unreachable(Exception):
    """An address that sends nothing now; the text says why. `host` is True where the whole host
    does not answer."""

    def __init__(self, why: str, host: bool = False) -> None:
        super().__init__(why)
        self.host = host


def download(url: str, target: Path, label: str) -> None:
    """Fetch `url` to `target`, from where an earlier attempt was cut (`target`.partial). Raises
    Unreachable."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"{url}: expected an http or https address. Fix sources.yaml.")
    partial = target.with_name(target.name + PARTIAL)
    why: Unreachable | None = None
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE)
        try:
            _attempt(url, partial, label)
            put_in_place(partial, target)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # what is there is longer than the file: begin again
                partial.unlink(missing_ok=True)
            why = Unreachable(f"{url}: the server answers {error.code} {error.reason}")
            if error.code not in (408, 416, 429) and error.code < 500:
                break
        except (
            urllib.error.URLError,
            http.client.HTTPException,
            TimeoutError,
            ConnectionError,
        ) as error:
            why = Unreachable(
                f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}",
                isinstance(error, urllib.error.URLError),
            )
            if isinstance(getattr(error, "reason", None), (socket.gaierror, TimeoutError)):
                # no network, no such host, or one that lets us wait: asking again at once does not
                # help
                break
        except OSError as error:
            raise explain_error(error, partial) from error
    assert why is not None
    raise why


def _attempt(url: str, partial: Path, label: str) -> None:
    partial.parent.mkdir(parents=True, exist_ok=True)
    size = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(
        url, headers={"User-Agent": "kepl"} | ({"Range": f"bytes={size}-"} if size else {})
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        begins = (answer.headers.get("Content-Range") or "").partition(" ")[2].partition("-")[0]
        if answer.status != 206 or begins != str(size):
            size = 0
            if answer.status == 206:
                partial.unlink(missing_ok=True)
                raise http.client.HTTPException(
                    f"answered with another part ({begins or 'unnamed'}) than was asked for"
                )
        length = answer.headers.get("Content-Length")
        total = size + int(length) if length else None
        with (
            open(partial, "ab" if size else "wb") as handle,
            tqdm(
                total=total, initial=size, unit="B", unit_scale=True, desc=label, disable=None
            ) as bar,
        ):
            while block := answer.read(1 << 16):
                size += len(block)
                if size > LARGEST:
                    raise InputError(
                        f"{url}: sends more than {LARGEST:,} bytes. Check the address in"
                        " sources.yaml."
                    )
                handle.write(block)
                bar.update(len(block))
    if total is not None and size < total:
        raise http.client.HTTPException(f"the connection was cut after {size:,} of {total:,} bytes")
