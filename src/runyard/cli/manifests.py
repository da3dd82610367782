"""`runyard manifests`: prints the Kubernetes objects that a cluster needs, for `kubectl apply -f -`."""

import re
from collections.abc import Sequence

import click

from runyard.wire import names

_COMPONENTS = ("crd", "server", "operator", "agent")
_OPTIONAL = ("interchange",)
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


@click.command(context_settings={"max_content_width": 110})
@click.option(
    "--component",
    "components",
    type=click.Choice((*_COMPONENTS, *_OPTIONAL)),
    multiple=True,
    help="Print only what this component needs; may be repeated.  [default: all but interchange]",
)
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="Also print the account of the agent on the host NAME, with its bindings; may be repeated.",
)
@click.option(
    "--namespace",
    default=names.RUNNERS_NAMESPACE,
    show_default=True,
    help="Namespace of the pools and the runner Pods.",
)
@click.option(
    "--controller-namespace",
    default=names.CONTROLLER_NAMESPACE,
    show_default=True,
    help="Namespace of the accounts that server, operator and agents use.",
)
@click.option(
    "--pods-namespace",
    "pod_namespaces",
    metavar="NAMESPACE",
    multiple=True,
    help="Also allow hosts to run Pods of this namespace that are no runners; may be repeated.",
)
@click.option(
    "--secret",
    "secrets",
    metavar="NAMESPACE/NAME",
    multiple=True,
    help="Also allow hosts to read this Secret, for the environment of such Pods; may be repeated.",
)
@click.option(
    "--config-map",
    "config_maps",
    metavar="NAMESPACE/NAME",
    multiple=True,
    help="Also allow hosts to read this ConfigMap; may be repeated.",
)
def manifests(
    *,
    components: Sequence[str],
    hosts: Sequence[str],
    namespace: str,
    controller_namespace: str,
    pod_namespaces: Sequence[str],
    secrets: Sequence[str],
    config_maps: Sequence[str],
) -> None:
    """Print the Kubernetes objects that a cluster needs, as YAML for kubectl.

    \b
    crd        the RunnerPool definition, and rules for pools in the roles view, edit and admin
    server     namespaces, ServiceAccount, roles and bindings of `runyard server`
    operator   namespaces, ServiceAccount, roles and bindings of `runyard operator`
    agent      namespaces, RuntimeClasses, roles of `runyard agent`, and the admission policy that limits each
               host to its own Node and Pods; with --host NAME also that host's ServiceAccount and bindings

    \b
    interchange, only if it is named: further roles of the operator's account, and of the hosts', with which Tuist's
               own runners-controller and tart-kubelet can run beside runyard's components or in place of them

    The output contains no secret and is the same for the same flags, so it can be kept in git. Applying it twice
    changes nothing. The admission policy needs Kubernetes 1.30 or later.

    \b
    runyard manifests | kubectl apply -f -
    runyard manifests --component agent --host mini-1 --host mini-2 | kubectl apply -f -
    runyard manifests --component agent --host mini-1 --pods-namespace results --secret results/database
    runyard manifests | kubectl diff -f -                      what an upgrade would change
    kubectl -n tuist create token tart-kubelet-mini-1          a credential for the agent on mini-1
    """
    if hosts and components and not {"agent", "interchange"} & {*components}:
        raise click.UsageError(
            "--host needs --component agent or interchange: only agents have an account per host"
        )
    _checked("--namespace", namespace, _NAMESPACE)
    _checked("--controller-namespace", controller_namespace, _NAMESPACE)
    for host in hosts:
        _checked("--host", host, _HOST)
    if namespace == controller_namespace:
        raise click.UsageError(
            f"--namespace and --controller-namespace are both {namespace!r}: a host could then create a token of the"
            " server. Use two namespaces"
        )
    more = (
        tuple(_checked("--pods-namespace", name, _NAMESPACE) for name in pod_namespaces),
        tuple(_pair("--secret", pair) for pair in secrets),
        tuple(_pair("--config-map", pair) for pair in config_maps),
    )
    if any(more) and not hosts:
        raise click.UsageError("--pods-namespace, --secret and --config-map need --host NAME")
    if controller_namespace in pod_namespaces:
        raise click.UsageError(
            f"--pods-namespace {controller_namespace} holds the accounts of the components: a host could then create a"
            " token of the server. Run these Pods in another namespace"
        )
    text = _text(components or _COMPONENTS, hosts, namespace, controller_namespace, more)
    click.echo(text, nl=False)


def _checked(flag: str, name: str, allowed: re.Pattern[str]) -> str:
    if not allowed.fullmatch(name):
        raise click.UsageError(
            f"{flag}: {name!r} is not a valid Kubernetes name. Use letters, digits and '-'"
        )
    return name


def _pair(flag: str, pair: str) -> tuple[str, str]:
    space, slash, name = pair.partition("/")
    if not slash:
        raise click.UsageError(f"{flag}: {pair!r} is not of the form NAMESPACE/NAME")
    return _checked(flag, space, _NAMESPACE), _checked(flag, name, _OBJECT)


def _text(
    components: Sequence[str],
    hosts: Sequence[str],
    namespace: str,
    controller: str,
    more: tuple[tuple[str, ...], tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]],
) -> str:
    import yaml  # not for --help: it is slow to load

    from runyard.wire import install

    objects = install.objects(
        components,
        hosts=hosts,
        namespace=namespace,
        controller_namespace=controller,
        elsewhere=install.Elsewhere(*more) if any(more) else None,
    )
    return yaml.safe_dump_all(
        objects, explicit_start=True, sort_keys=False, allow_unicode=True, width=110
    )
