"""The same option means the same on every command."""

from collections.abc import Iterator

import click
import pytest

from runyard.cli.main import cli
from runyard.cli.serverfiles import address
from runyard.http.addresses import is_loopback
from runyard.vm.registry import RUNTIMES


def commands(group: click.Command, name: str = "runyard") -> Iterator[tuple[str, click.Command]]:
    """Every command that can be typed, with its words."""
    if not isinstance(group, click.Group):
        yield name, group
        return
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        yield from commands(command, f"{name} {word}")


ALL = dict(commands(cli))


def having(option: str) -> dict[str, click.Option]:
    """The commands with that option."""
    return {
        name: each
        for name, command in ALL.items()
        for each in command.params
        if isinstance(each, click.Option) and option in each.opts
    }


def test_no_command_listens_off_loopback_unless_it_is_told_to() -> None:
    found = having("--listen")
    assert {"runyard up", "runyard server", "runyard processor", "runyard practice serve"} <= set(
        found
    )
    ports = []
    for name, option in found.items():
        host, port = address("--listen", str(option.default))
        assert is_loopback(host), name
        assert (option.envvar, option.metavar) == ("RUNYARD_LISTEN", "HOST:PORT"), name
        ports.append(port)
    assert len(set(ports)) == len(ports), "two commands on one machine would take one port"


def test_no_command_has_an_address_or_a_port_of_its_own_beside_listen() -> None:
    assert not {"--port", "--address", "--host-port"} & {
        opt for name in having("--listen") for each in ALL[name].params for opt in each.opts
    }


def test_every_driver_of_the_registry_can_be_named_on_every_command_that_runs_a_host() -> None:
    found = having("--driver")
    assert {"runyard up", "runyard agent", "runyard host join"} <= set(found)
    for name, option in found.items():
        assert isinstance(option.type, click.Choice), name
        assert sorted(option.type.choices) == sorted(("auto", *RUNTIMES)), name


def test_hosts_of_every_command_find_the_runner_in_a_guest_by_the_same_option() -> None:
    found = having("--runner-directory")
    assert {"runyard up", "runyard agent", "runyard host join"} <= set(found)
    assert len({option.help for option in found.values()}) == 1


def test_jobs_arrive_the_same_way_on_every_command_unless_it_is_told_otherwise() -> None:
    found = having("--github-intake")
    assert {"runyard up", "runyard server", "runyard github check"} <= set(found)
    assert {option.default for option in found.values()} == {"pull"}


def test_every_command_that_uses_a_running_machine_finds_it_by_its_data_directory() -> None:
    pools = {name for name in having("--kubeconfig") if name.startswith("runyard pool ")}
    talking = {"runyard up", "runyard doctor", "runyard practice push", *having("--server"), *pools}
    assert {
        "runyard explain",
        "runyard pool create",
        "runyard status",
        "runyard dashboard",
        "runyard tenant list",
        "runyard job show",
    } < talking
    # These use the Kubernetes API of the machine, and `join` runs on another one.
    hosts = {"token", "list", "drain", "undrain", "remove"}
    talking |= {f"runyard host {each}" for each in hosts}
    by_data = {name for name, option in having("--data").items() if option.envvar == "RUNYARD_DATA"}
    assert by_data == talking


@pytest.mark.parametrize("option", ["--data", "--listen"])
def test_an_environment_variable_means_one_thing(option: str) -> None:
    named = {each.envvar for each in having(option).values() if each.envvar}
    others = {
        each.envvar
        for command in ALL.values()
        for each in command.params
        if isinstance(each, click.Option) and option not in each.opts and each.envvar
    }
    assert not named & others
