"""Kubeconfigs are found and read as kubectl does it, and errors name the fix without a secret."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kube.authsupport import (
    BETA,
    ENVIRON,
    V1,
    Authority,
    b64,
    config_of,
    kubeconfig,
    plugin_user,
    write,
)
from tests.tiers import examples

from runyard.clock import RealClock
from runyard.kube import kubeyaml
from runyard.kube.config import Config, ConfigError, Secret
from runyard.kube.connect import connect
from runyard.kube.kubeconfig import find_config

SECRET = "secret-98765"  # planted wherever a secret can be; must never be shown
AUTHORITY = Authority()
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def refused(folder: Path, value: dict[str, Any], **how: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config_of(folder, value, **how)
    shown = f"{caught.value} {caught.value!r} {caught.value.__context__!r}"
    assert SECRET not in shown and b64(SECRET) not in shown
    assert caught.value.fix
    return caught.value


# ── finding ─────────────────────────────────────────────────────────────────────────────────────────


def named(name: str) -> dict[str, Any]:
    return kubeconfig({"server": f"https://{name}.test"})


def account(folder: Path, *, namespace: str = "yard") -> Path:
    place = folder / "account"
    place.mkdir(exist_ok=True)
    (place / "token").write_text("t\n")
    (place / "ca.crt").write_text(AUTHORITY.pem)
    if namespace:
        (place / "namespace").write_text(namespace)
    return place


FOUND = {
    "the path that was given": ("flag", True, True, "https://flag.test"),
    "then KUBECONFIG": ("", True, True, "https://env.test"),
    "then the Pod's account": ("", False, True, "https://10.0.0.1:443"),
    "then the home directory": ("", False, False, "https://home.test"),
}


@pytest.mark.parametrize("title", FOUND)
def test_a_configuration_of_lower_rank_is_not_taken(tmp_path: Path, title: str) -> None:
    flag, env, pod, server = FOUND[title]
    for name in ("flag", "env"):
        write(tmp_path / name, named(name))
    write(tmp_path / ".kube" / "config", named("home"))
    environ = {"KUBECONFIG": str(tmp_path / "env")} if env else {}
    found = find_config(
        str(tmp_path / flag) if flag else "",
        environ=environ | (POD if pod else {}),
        home=tmp_path,
        service_account=account(tmp_path),
    )
    assert found.cluster.server == server


def test_a_missing_file_that_was_asked_for_is_not_skipped(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", named("home"))
    with pytest.raises(ConfigError, match=r"absent: cannot be read \(No such file"):
        find_config(str(tmp_path / "absent"), environ={}, home=tmp_path)
    with pytest.raises(ConfigError, match=r"KUBECONFIG names .*absent.*; correct the variable"):
        find_config(environ={"KUBECONFIG": str(tmp_path / "absent")}, home=tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        find_config(str(tmp_path), environ={}, home=tmp_path)  # a directory


def test_nothing_at_all_says_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find_config(environ={"KUBECONFIG": ""}, home=tmp_path, service_account=tmp_path / "none")
    assert str(tmp_path / ".kube" / "config") in caught.value.cause
    assert "KUBECONFIG" in caught.value.cause


def test_a_context_by_name_is_never_the_pods_account(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", named("home"))
    how: Any = {"environ": POD, "home": tmp_path, "service_account": account(tmp_path)}
    assert find_config(context="one", **how).cluster.server == "https://home.test"
    assert find_config(**how).context == ""


def test_a_pod_gets_its_namespace_authority_and_a_token_that_is_read_again(tmp_path: Path) -> None:
    place = account(tmp_path)
    environ = POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    found = find_config(environ=environ, home=tmp_path, service_account=place)
    assert found.cluster.server == "https://[fd00::1]:443"
    assert found.cluster.authority == AUTHORITY.pem
    assert found.namespace == "yard"
    assert found.user.token.path == str(place / "token")
    (place / "namespace").unlink()
    assert find_config(environ=environ, home=tmp_path, service_account=place).namespace == "default"
    (place / "ca.crt").unlink()
    with pytest.raises(ConfigError, match=r"ca\.crt cannot be read"):
        find_config(environ=environ, home=tmp_path, service_account=place)


def test_a_pod_without_an_account_looks_further(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", named("home"))
    found = find_config(environ=POD, home=tmp_path, service_account=tmp_path / "none")
    assert found.cluster.server == "https://home.test"


def test_merged_files_never_mix_two_entries_of_one_name(tmp_path: Path) -> None:
    first = kubeconfig({"server": "https://first.test"}, {"token": "first"})
    del first["current-context"]
    second = kubeconfig(
        {"server": "https://second.test", "tls-server-name": "second"},
        {"token": "second", "tokenFile": "absent"},
        {"namespace": "second"},
    )
    second["clusters"].append({"name": "two", "cluster": {"server": "https://two.test"}})
    second["contexts"].append({"name": "two", "context": {"cluster": "two", "user": "one"}})
    files = [tmp_path / "a", tmp_path / "absent", tmp_path / "b"]
    write(files[0], first)
    write(files[2], second)
    environ = {"KUBECONFIG": os.pathsep.join(["", *map(str, files), ""])}

    found = find_config(environ=environ, home=tmp_path)
    assert found.context == "one"  # only the second file names one
    assert found.cluster.server == "https://first.test"
    assert found.cluster.tls_server_name == ""
    assert found.user.token.data == Secret("first")
    assert found.user.token.path == ""
    assert found.namespace == "default"
    other = find_config(environ=environ, home=tmp_path, context="two")
    assert other.cluster.server == "https://two.test"
    assert other.user == found.user
    write(files[0], first | {"current-context": "two"})
    assert find_config(environ=environ, home=tmp_path).context == "two"  # both files name one


def test_relative_paths_are_relative_to_the_file_that_holds_them(tmp_path: Path) -> None:
    pair = AUTHORITY.issue("me")
    for name, text in {"ca": AUTHORITY.pem, "crt": pair.chain, "key": pair.key, "tok": "t"}.items():
        (tmp_path / "deep").mkdir(exist_ok=True)
        (tmp_path / "deep" / name).write_text(text)
    user = {"client-certificate": "crt", "client-key": "key"}
    found = config_of(tmp_path / "deep", kubeconfig({"certificate-authority": "ca"}, user))
    assert found.cluster.authority == AUTHORITY.pem
    assert found.user.certificate.path == str(tmp_path / "deep" / "crt")
    assert found.user.key.path == str(tmp_path / "deep" / "key")
    found = config_of(tmp_path / "deep", kubeconfig({}, plugin_user("./bin/plugin")))
    assert found.user.plugin is not None
    assert found.user.plugin.command == str(tmp_path / "deep" / "bin" / "plugin")
    found = config_of(tmp_path / "deep", kubeconfig({}, {"tokenFile": "tok"}))
    assert found.user.token.path == str(tmp_path / "deep" / "tok")
    found = config_of(tmp_path, kubeconfig({}, plugin_user("on-path")))
    assert found.user.plugin is not None and found.user.plugin.command == "on-path"


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────

PAIR = AUTHORITY.issue("me")
CERTIFICATE = {"client-certificate-data": b64(PAIR.chain), "client-key-data": b64(PAIR.key)}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no context": (kubeconfig(**{"current-context": ""}), "no context is chosen; there are 'one'"),
    "unknown context": (kubeconfig(**{"current-context": "x"}), "there is no context 'x'"),
    "unknown cluster": (kubeconfig(context={"cluster": "x"}), "context 'one': there is no cluster"),
    "unknown user": (kubeconfig(context={"user": "x"}), "context 'one': there is no user 'x'"),
    "bad namespace": (kubeconfig(context={"namespace": "../x"}), "namespace is not a name"),
    "another kind": (kubeconfig(kind="Pod"), "is not a kubeconfig"),
    "another version": (kubeconfig(apiVersion="v2"), "is not a kubeconfig"),
    "clusters is a text": (
        kubeconfig(clusters=SECRET),
        r"Expected `array`, got `str` - at `\$.clu",
    ),
    "user is a list": (kubeconfig(users=[{"name": "one", "user": [SECRET]}]), "Expected `object`"),
    "token is a mapping": (kubeconfig(user={"token": {SECRET: 1}}), "user 'one': Expected `str`"),
    "no name": (kubeconfig(users=[{"user": {"token": SECRET}}]), "missing required field `name`"),
    "two of one name": (kubeconfig(users=[{"name": "a"}] * 2), "two entries have the name 'a'"),
    "no server": (kubeconfig({"server": ""}), "cluster 'one': it has no server"),
    "server without scheme": (kubeconfig({"server": f"{SECRET}:1"}), "not an http or https URL"),
    "server with a password": (kubeconfig({"server": f"https://u:{SECRET}@h"}), "a password"),
    "server with a bad port": (kubeconfig({"server": f"https://h:{SECRET}"}), "not an http"),
    "server with a query": (kubeconfig({"server": f"https://h?t={SECRET}"}), "do not belong"),
    "server with a bad bracket": (kubeconfig({"server": f"https://[{SECRET}"}), "not an http"),
    "server with a space": (kubeconfig({"server": "https://a b"}), "not an http"),
    "proxy": (kubeconfig({"proxy-url": f"http://u:{SECRET}@p"}), "proxy-url is not supported"),
    "authority is no base64": (kubeconfig({"certificate-authority-data": "%"}), "not PEM in bas"),
    "authority is no PEM": (kubeconfig({"certificate-authority-data": b64("x")}), "not PEM"),
    "authority is nonsense": (
        kubeconfig({"certificate-authority-data": b64("-----BEGIN CERTIFICATE-----\nx")}),
        "holds no usable certificate",
    ),
    "authority file is absent": (kubeconfig({"certificate-authority": "x"}), "x cannot be read"),
    "authority twice": (
        kubeconfig(
            {"certificate-authority": "x", "certificate-authority-data": b64("-----BEGIN ")}
        ),
        "both set; keep one",
    ),
    "authority and insecure": (
        kubeconfig(
            {"certificate-authority-data": b64(AUTHORITY.pem), "insecure-skip-tls-verify": True}
        ),
        "exclude each other; remove insecure",
    ),
    "insecure is no boolean": (kubeconfig({"insecure-skip-tls-verify": "yes"}), "Expected `bool`"),
    "a server name that is none": (kubeconfig({"tls-server-name": ".x"}), "tls-server-name is not"),
    "user name": (kubeconfig(user={"username": SECRET}), "username is refused: basic auth"),
    "password": (kubeconfig(user={"password": SECRET}), "password is refused: basic auth"),
    "auth provider": (
        kubeconfig(user={"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}}),
        "auth-provider is refused: built-in providers were removed",
    ),
    "impersonation": (kubeconfig(user={"as": "root"}), "as is refused: impersonation"),
    "token with a line break": (kubeconfig(user={"token": f"{SECRET}\nx: y"}), "token has char"),
    "certificate without key": (
        kubeconfig(user={"client-certificate-data": b64(PAIR.chain)}),
        "need each other",
    ),
    "key without certificate": (
        kubeconfig(user={"client-key-data": b64(f"-----BEGIN {SECRET}")}),
        "need each other",
    ),
    "key is no PEM": (
        kubeconfig(user=CERTIFICATE | {"client-key-data": b64(SECRET)}),
        "client-key-data is not PEM in base64",
    ),
    "key file and data": (kubeconfig(user=CERTIFICATE | {"client-key": "x"}), "both set"),
    "token file is absent": (kubeconfig(user={"tokenFile": "x"}), "tokenFile: .*x cannot be read"),
    "plugin without command": (kubeconfig(user=plugin_user("")), "exec has no command"),
    "plugin of an old version": (
        kubeconfig(user=plugin_user("x", "client.authentication.k8s.io/v1alpha1")),
        "exec.apiVersion is not supported; set it to client.authentication.k8s.io/v1",
    ),
    "plugin without mode": (kubeconfig(user=plugin_user("x", interactiveMode="")), "missing or"),
    "plugin of unknown mode": (kubeconfig(user=plugin_user("x", interactiveMode="x")), "unknown"),
    "plugin that asks": (
        kubeconfig(user=plugin_user("x", interactiveMode="Always")),
        "a daemon has no terminal",
    ),
    "plugin with a bad variable": (
        kubeconfig(user=plugin_user("x", env=[{"name": "a=b", "value": SECRET}])),
        "without a usable name",
    ),
    "plugin arguments are a text": (
        kubeconfig(user=plugin_user("x", args=SECRET)),
        r"Expected `array`, got `str` - at `\$.exec.args`",
    ),
    "token in the clear": (
        kubeconfig({"server": "http://far.test"}, {"token": SECRET}),
        "plain http and user 'one' would send",
    ),
    "NUL in an argument": (kubeconfig(user=plugin_user("x", args=["\0"])), "no name, path or key"),
}


@pytest.mark.parametrize("title", REFUSED)
def test_an_unsupported_field_is_refused_by_name(tmp_path: Path, title: str) -> None:
    value, message = REFUSED[title]
    error = refused(tmp_path, value)
    assert error.file == str(tmp_path / "kubeconfig")
    with pytest.raises(ConfigError, match=message):
        raise error


def test_an_invalid_entry_that_is_not_used_is_ignored(tmp_path: Path) -> None:
    value = kubeconfig(user={"token": "t"})
    value["users"].append({"name": "old", "user": {"auth-provider": {"name": "gcp"}}})
    value["clusters"].append({"name": "old", "cluster": {"server": 7, "proxy-url": ["x"]}})
    assert config_of(tmp_path, value).user.token.data == Secret("t")


ANONYMOUS = {
    "no user": kubeconfig({"server": "http://far.test"}, context={"user": ""}),
    "an empty user": kubeconfig({"server": "http://far.test"}),
    "a user that is null": kubeconfig(
        {"server": "http://far.test"}, users=[{"name": "one", "user": None}]
    ),
}


@pytest.mark.parametrize("title", ANONYMOUS)
def test_anonymous_is_allowed_as_with_kubectl_proxy(tmp_path: Path, title: str) -> None:
    assert config_of(tmp_path, ANONYMOUS[title]).user.anonymous


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
def test_a_token_may_be_sent_over_plain_http_on_loopback(tmp_path: Path, host: str) -> None:
    value = kubeconfig({"server": f"http://{host}/"}, {"token": "t"})
    assert config_of(tmp_path, value).cluster.server == f"http://{host}"


def test_texts_that_look_like_other_yaml_types_stay_texts(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: 1\npreferences: {}\n"
        "clusters: [{name: on, cluster: {server: 'https://h:1/k8s/c1/', extensions: ["
        "{name: client.authentication.k8s.io/exec, extension: {a: 1, b: null, c: yes}}]}}]\n"
        "users: [{name: 2020-01-01, user: {token: 12345, exec: null}}]\n"
        "contexts: [{name: 1, context: {cluster: on, user: 2020-01-01, namespace: 007}}]\n"
    )
    found = find_config(str(path), environ={}, home=tmp_path)
    assert found.user.token.data == Secret("12345")
    assert found.namespace == "007"
    assert found.cluster.server == "https://h:1/k8s/c1"
    assert found.cluster.plugin_config == {"a": 1, "b": None, "c": "yes"}


def test_a_few_anchors_and_merges_are_supported(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        "current-context: one\nclusters: [{name: one, cluster: &c {server: 'https://a'}},"
        " {name: two, cluster: {<<: *c, tls-server-name: b}}]\n"
        "contexts: [{name: one, context: {cluster: two}}]\n"
    )
    found = find_config(str(path), environ={}, home=tmp_path)
    assert (found.cluster.server, found.cluster.tls_server_name) == ("https://a", "b")


@pytest.mark.parametrize("written", [{"token": "t"}, CERTIFICATE], ids=["token", "certificate"])
def test_a_configured_credential_is_used_instead_of_the_plugin(
    tmp_path: Path, written: dict[str, str]
) -> None:
    found = config_of(tmp_path, kubeconfig(user=plugin_user("x") | written))
    assert found.user.plugin is None


def test_the_older_plugin_version_needs_no_mode(tmp_path: Path) -> None:
    user = plugin_user("x", BETA)
    del user["exec"]["interactiveMode"]
    assert config_of(tmp_path, kubeconfig(user=user)).user.plugin is not None
    assert V1 != BETA


# ── hostile files ───────────────────────────────────────────────────────────────────────────────────


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    return "\n".join(lines)


HOSTILE = {
    "billion laughs": (bomb(10), "becomes more than"),
    "billion laughs by merging": (
        bomb(3).replace("[x", "[{a: 1}") + "\nz: {<<: [" + ", ".join(["*a2"] * 100) + "]}",
        "becomes more than|not valid YAML",
    ),
    "a ladder of aliases": (
        "a0: &a0 [x]\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100)),
        "nested deeper",
    ),
    "deep lists": ("[" * 100_000, "nested deeper|not valid"),
    "deep mappings": ("{a: " * 50_000, "nested deeper|not valid"),
    "deep blocks": ("\n".join(" " * n + "a:" for n in range(500)), "nested deeper"),
    "an alias in itself": ("a: &a [*a]", "before its anchor is complete"),
    "an alias that is a token": (f"token: *{SECRET}", "before its anchor is complete"),
    "a tag that is a token": (f"token: !{SECRET} x", "not valid YAML at line 1, column 8"),
    "a python object": (f"a: !!python/object/apply:os.system ['{SECRET}']", "not valid YAML"),
    "binary": ("a: !!binary aGVsbG8=", "not valid YAML"),
    "a number that is none": (f"a: !!int {SECRET}", "not valid YAML"),
    "an unfinished text": (f'a: "{SECRET}', "not valid YAML at line 1"),
    "a list": (f"[{SECRET}]", "is not a mapping"),
    "a text": (SECRET, "is not a mapping"),
    "two documents": (f"a: 1\n---\nb: {SECRET}", "not valid YAML at line 2"),
    "a list as a key": (f"? [{SECRET}]\n: 1", "not valid YAML"),
    "control characters": (f"a: {SECRET}\x01", "not valid YAML"),
}


@pytest.mark.parametrize("title", HOSTILE)
def test_a_hostile_file_is_refused_cheaply_and_without_quoting_it(
    tmp_path: Path, title: str
) -> None:
    text, message = HOSTILE[title]
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        find_config(str(path), environ={}, home=tmp_path)
    assert SECRET not in f"{caught.value!r} {caught.value.__context__!r} {caught.value.__cause__!r}"
    assert str(path) in str(caught.value)


def test_a_huge_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: reading it all would end this machine
    with pytest.raises(ConfigError, match=f"is larger than {kubeyaml.MAX_BYTES} bytes"):
        find_config(str(path), environ={}, home=tmp_path)


def test_bytes_that_are_no_text_are_refused_without_quoting_them(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(SECRET.encode() + b"\xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text") as caught:
        find_config(str(path), environ={}, home=tmp_path)
    assert caught.value.__context__ is None  # a decoding error holds all of the bytes


def test_a_socket_is_an_error_and_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        with pytest.raises(ConfigError, match="cannot be read"):
            find_config("s", environ={}, home=tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
PATHS: tuple[tuple[str | int, ...], ...] = (
    ("clusters",),
    ("users", 0),
    ("users", 0, "user"),
    ("contexts", 0, "context", "namespace"),
    ("clusters", 0, "cluster", "server"),
    ("clusters", 0, "cluster", "tls-server-name"),
    ("clusters", 0, "cluster", "extensions"),
    ("clusters", 0, "cluster", "certificate-authority-data"),
    ("users", 0, "user", "exec", "env"),
    ("users", 0, "user", "exec", "command"),
    ("users", 0, "user", "client-key"),
    ("current-context",),
)


@given(where=st.sampled_from(PATHS), what=JSON)
@settings(
    max_examples=examples(300),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_value_in_any_place_is_a_configuration_or_an_error(
    tmp_path: Path, where: tuple[Any, ...], what: Any
) -> None:
    value = kubeconfig(user=plugin_user("x"))
    place: Any = value
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = what
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.dump(value, allow_unicode=True), encoding="utf-8", errors="surrogatepass")
    try:
        found = find_config(str(path), environ={}, home=tmp_path)
    except ConfigError:
        return
    assert isinstance(found, Config)


HOSTS = st.from_regex(r"\A(?:https?://)?[ -~é]{0,12}(?::[0-9]{1,5})?(?:/[ -~]{0,6})?\Z")


@given(server=HOSTS)
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_server_that_is_accepted_can_be_connected_to(tmp_path: Path, server: str) -> None:
    try:
        found = config_of(tmp_path, kubeconfig({"server": server}))
    except ConfigError:
        return
    connect(found, clock=RealClock(), environ=ENVIRON)  # would raise for an address of no server


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_configuration_shows_no_secret(tmp_path: Path) -> None:
    variable = {"name": "PASSWORD", "value": SECRET}
    plugin = plugin_user("x", args=[f"--password={SECRET}"], env=[variable])
    pair = {
        "client-certificate-data": b64(f"-----BEGIN CERTIFICATE-----\n{SECRET}"),
        "client-key-data": b64(f"-----BEGIN PRIVATE KEY-----\n{SECRET}"),
    }
    for chosen in (plugin, pair, {"token": SECRET}):
        found = config_of(tmp_path, kubeconfig(user=chosen))
        assert not found.user.anonymous
        assert SECRET not in f"{found} {found!r} {found.user!r} {found.user.plugin!r}"
        assert "[redacted]" in repr(found)


def test_a_secret_cannot_be_serialized() -> None:
    secret = Secret(SECRET)
    assert SECRET not in f"{secret} {secret!r} {[secret]}" and secret.reveal() == SECRET
    with pytest.raises(TypeError):
        secret.__reduce__()
