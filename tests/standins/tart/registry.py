"""Registries: a real one over HTTP, or a directory.

The knob `registry-directory` names a directory that takes the place of every registry:

    <host>/<namespace>/manifests/<tag or digest>     <host>/<namespace>/blobs/<digest>

with the host's port percent-encoded. `tart push` fills it as it would fill a registry.
"""

import base64
import hashlib
import http.client
import json
import os
import urllib.parse
from collections.abc import Iterator

from tests.standins.tart import credentials, errors
from tests.standins.tart.context import Context

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
BLOCK = 1 << 16


def digest_of(data: bytes) -> str:
    """The name of a blob."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def connect(
    context: Context,
    host: str,
    namespace: str,
    *,
    insecure: bool,
    user: credentials.User | None = None,
) -> "Registry":
    """The repository of a registry."""
    folder = context.knobs.text("registry-directory")
    if folder is not None:
        return DirectoryRegistry(context, host, namespace, folder)
    found = user or credentials.find(context, host)
    return HttpRegistry(context, host, namespace, insecure=insecure, user=found)


class Registry:
    """One repository; what the two kinds have in common are the knobs that make it fail."""

    def __init__(self, context: Context, host: str, namespace: str) -> None:
        self.context = context
        self.host = host
        self.namespace = namespace

    def disturb(self, when: str) -> None:
        """`registry-status`: an HTTP status; `registry-reset`: a connection that breaks."""
        status = self.context.knobs.take("registry-status")
        if status:
            raise errors.bad_status(when, int(status), "")
        if self.context.knobs.take("registry-reset") is not None:
            raise errors.NetworkDown("The network connection was lost.")

    def ping(self) -> None:
        """Fail if the registry does not let this user in."""

    def manifest(self, reference: str) -> bytes:
        """The manifest of a tag or digest."""
        raise NotImplementedError

    def blob(self, digest: str) -> Iterator[bytes]:
        """The bytes of a blob, piece by piece."""
        raise NotImplementedError

    def has(self, digest: str) -> bool:
        """Whether a blob is there already."""
        raise NotImplementedError

    def put_blob(self, digest: str, data: bytes, chunk: int = 0) -> None:
        """Upload a blob, whole or in chunks of so many bytes."""
        raise NotImplementedError

    def put_manifest(self, reference: str, data: bytes) -> None:
        """Upload a manifest under a tag."""
        raise NotImplementedError


class DirectoryRegistry(Registry):
    """A directory."""

    def __init__(self, context: Context, host: str, namespace: str, folder: str) -> None:
        super().__init__(context, host, namespace)
        self.folder = os.path.join(folder, host.replace(":", "%3A"), namespace)

    def _path(self, kind: str, name: str) -> str:
        return os.path.join(self.folder, kind, name)

    def _write(self, kind: str, name: str, data: bytes) -> None:
        path = self._path(kind, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.new", "wb") as file:
            file.write(data)
        os.replace(f"{path}.new", path)

    def manifest(self, reference: str) -> bytes:
        """Read a file."""
        self.disturb("pulling manifest")
        try:
            with open(self._path("manifests", reference), "rb") as file:
                return file.read()
        except FileNotFoundError:
            details = '{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'
            raise errors.bad_status("pulling manifest", 404, details) from None

    def blob(self, digest: str) -> Iterator[bytes]:
        """Read a file piece by piece."""
        self.disturb("pulling blob")
        try:
            with open(self._path("blobs", digest), "rb") as file:
                while data := file.read(BLOCK):
                    yield data
        except FileNotFoundError:
            raise errors.bad_status("pulling blob", 404, "") from None

    def has(self, digest: str) -> bool:
        """Look for the file."""
        self.disturb("checking blob")
        return os.path.exists(self._path("blobs", digest))

    def put_blob(self, digest: str, data: bytes, chunk: int = 0) -> None:
        """Write a file."""
        self.disturb("pushing blob")
        self._write("blobs", digest, data)

    def put_manifest(self, reference: str, data: bytes) -> None:
        """Write a file for the tag and one for the digest."""
        self.disturb("pushing manifest")
        for name in (digest_of(data), reference):
            self._write("manifests", name, data)


class HttpRegistry(Registry):
    """A registry that speaks the distribution protocol."""

    def __init__(
        self,
        context: Context,
        host: str,
        namespace: str,
        *,
        insecure: bool,
        user: credentials.User | None,
    ) -> None:
        super().__init__(context, host, namespace)
        self.insecure = insecure
        self.user = user
        self.authorization = ""
        self.link: http.client.HTTPConnection | None = None

    def _connection(self) -> http.client.HTTPConnection:
        if self.link is None:
            kind = http.client.HTTPConnection if self.insecure else http.client.HTTPSConnection
            self.link = kind(self.host, timeout=60)
        return self.link

    def _request(
        self, method: str, path: str, *, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """One request; after a 401 once more with what the registry asks for."""
        for attempt in (1, 2):
            sent = dict(headers or {})
            if self.authorization:
                sent["Authorization"] = self.authorization
            try:
                link = self._connection()
                link.request(method, path, body=body or None, headers=sent)
                answer = link.getresponse()
            except (OSError, http.client.HTTPException) as error:
                self.link = None
                raise errors.NetworkDown("Could not connect to the server.") from error
            if answer.status != 401 or attempt == 2:
                return answer
            answer.read()
            self._authenticate(answer.getheader("WWW-Authenticate") or "")
        raise AssertionError("the second attempt returns")

    def _authenticate(self, challenge: str) -> None:
        scheme, _, rest = challenge.partition(" ")
        basic = ""
        if self.user is not None:
            basic = "Basic " + base64.b64encode(":".join(self.user).encode()).decode()
        if scheme.lower() == "basic":
            if not basic:
                raise errors.other(f'CredentialsNotFound(host: "{self.host}")')
            self.authorization = basic
            return
        asked = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        asked = {key: value.strip('"') for key, value in asked.items()}
        realm = urllib.parse.urlsplit(asked.pop("realm", ""))
        secure = realm.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        link = kind(realm.netloc, timeout=60)
        headers = {"Authorization": basic} if basic else {}
        link.request("GET", f"{realm.path}?{urllib.parse.urlencode(asked)}", headers=headers)
        answer = link.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise errors.other(
                f'AuthFailed(why: "received unexpected HTTP status code {answer.status}'
                f' while retrieving an authentication token", details: "")'
            )
        token = json.loads(text)
        self.authorization = f"Bearer {token.get('token') or token['access_token']}"

    def _expect(
        self, when: str, answer: http.client.HTTPResponse, *statuses: int
    ) -> tuple[bytes, str]:
        """The body and the location, if the status is one of these."""
        text = answer.read()
        if answer.status == 401:
            raise errors.other(
                f'AuthFailed(why: "received unexpected HTTP status code 401 while {when}",'
                ' details: "")'
            )
        if answer.status not in statuses:
            raise errors.bad_status(when, answer.status, text.decode(errors="replace").strip())
        return text, answer.getheader("Location") or ""

    def ping(self) -> None:
        """GET /v2/."""
        self._expect("doing ping", self._request("GET", "/v2/"), 200)

    def manifest(self, reference: str) -> bytes:
        """GET the manifest."""
        self.disturb("pulling manifest")
        path = f"/v2/{self.namespace}/manifests/{reference}"
        answer = self._request("GET", path, headers={"Accept": MANIFEST})
        return self._expect("pulling manifest", answer, 200)[0]

    def blob(self, digest: str) -> Iterator[bytes]:
        """GET the blob; a registry may redirect to its storage."""
        self.disturb("pulling blob")
        answer = self._request("GET", f"/v2/{self.namespace}/blobs/{digest}")
        if answer.status in {301, 302, 303, 307, 308}:
            answer.read()
            answer = self._elsewhere(answer.getheader("Location") or "")
        if answer.status != 200:
            self._expect("pulling blob", answer, 200)
        try:
            while data := answer.read(BLOCK):
                yield data
        except (OSError, http.client.HTTPException) as error:
            self.link = None
            raise errors.NetworkDown("The network connection was lost.") from error

    @staticmethod
    def _elsewhere(location: str) -> http.client.HTTPResponse:
        url = urllib.parse.urlsplit(location)
        secure = url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        link = kind(url.netloc, timeout=60)
        link.request("GET", f"{url.path}?{url.query}" if url.query else url.path)
        return link.getresponse()

    def has(self, digest: str) -> bool:
        """HEAD the blob."""
        self.disturb("checking blob")
        answer = self._request("HEAD", f"/v2/{self.namespace}/blobs/{digest}")
        self._expect("checking blob", answer, 200, 404)
        return answer.status == 200

    def put_blob(self, digest: str, data: bytes, chunk: int = 0) -> None:
        """POST for a place, PATCH the chunks, PUT the end."""
        self.disturb("pushing blob")
        answer = self._request("POST", f"/v2/{self.namespace}/blobs/uploads/")
        _, location = self._expect("pushing blob (POST)", answer, 202)
        at = 0
        while chunk and len(data) - at > chunk:
            piece = data[at : at + chunk]
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Range": f"{at}-{at + len(piece) - 1}",
            }
            answer = self._request("PATCH", _local(location), body=piece, headers=headers)
            _, location = self._expect("streaming blob", answer, 202)
            at += len(piece)
        target = _local(location)
        target += ("&" if "?" in target else "?") + f"digest={digest}"
        headers = {"Content-Type": "application/octet-stream"}
        answer = self._request("PUT", target, body=data[at:], headers=headers)
        self._expect("pushing blob (PUT)", answer, 201)

    def put_manifest(self, reference: str, data: bytes) -> None:
        """PUT the manifest."""
        self.disturb("pushing manifest")
        path = f"/v2/{self.namespace}/manifests/{reference}"
        answer = self._request("PUT", path, body=data, headers={"Content-Type": MANIFEST})
        self._expect("pushing manifest", answer, 201)


def _local(location: str) -> str:
    """The path of an upload, which a registry may give with its host."""
    url = urllib.parse.urlsplit(location)
    return f"{url.path}?{url.query}" if url.query else url.path
